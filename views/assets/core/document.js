// @ts-check
/**
 * The document as the page gets it: what views/document/drawing.py computes from an architecture
 * file.
 *
 * @typedef {{path: string, symbol?: string|null}} CodeRef
 * @typedef {{symbol: string, path: string, first: number, last: number, url: string|null}}
 *   VerifiedSource
 * @typedef {{label?: string, path: string, line?: number, end_line?: number, status: string,
 *   url: string|null}} PinnedSource
 * @typedef {{code: string, path: string, message: string, fix: string}} Note
 * @typedef {{claim: number, verdict: string, text: string, said: string}} ClaimMark
 * @typedef {{x: number, y: number, w: number, h: number}} Area
 * @typedef {Area & {id: string, type: string, label: string, sublabel?: string, tag?: string,
 *   live: string|null, code?: CodeRef[], verified_sources?: VerifiedSource[],
 *   pinned_sources?: PinnedSource[], upstream: string[], downstream: string[],
 *   notes?: Note[], claims?: ClaimMark[], source_claims?: ClaimMark[]}} Component
 * @typedef {Area & {kind: string, label: string, wraps: string[]}} Boundary
 * @typedef {{id: string, from: string, to: string, label?: string|null, variant?: string,
 *   width?: number|null, points: number[][], label_at?: number[]|null,
 *   label_size?: number[]|null, live: string|null}} Connection
 * @typedef {{id: string, label: string, focus: string[], note?: string,
 *   notes?: Note[], claims?: ClaimMark[]}} View
 * @typedef {{dot: string, title: string, items: string[], claims?: ClaimMark[][]}} Card
 * @typedef {{meta?: {title?: string, subtitle?: string, claims?: ClaimMark[]}, live: boolean,
 *   components: Component[], boundaries: Boundary[], connections: Connection[], views: View[],
 *   cards: Card[], request_path?: string[]}} PageDocument
 * @typedef {{name: string, is_shown: boolean, count: number, errors: {path: string,
 *   box: string|null, text: string}[]}} RefusedDocument
 */

export {};
