// @ts-check
/**
 * Small helpers to make elements. Text always goes in as text, never as markup.
 */

const SVG_NS = "http://www.w3.org/2000/svg";

/**
 * @param {Element} node
 * @param {Record<string, any>} attributes `on…` are listeners, `text` is textContent, false and
 *   undefined are left out
 * @param {(Node|string|null|undefined)[]} children
 */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false || value === null) continue;
    if (name === "text") node.textContent = String(value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
}

/**
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node|string|null|undefined)} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  fill(node, attributes, children);
  return node;
}

/**
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node|string|null|undefined)} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const node = /** @type {SVGElement} */ (document.createElementNS(SVG_NS, tag));
  fill(node, attributes, children);
  return node;
}

/**
 * An icon drawn as one path in a 16 by 16 square.
 * @param {string} path
 */
export function icon(path) {
  return svg(
    "svg",
    { viewBox: "0 0 16 16", class: "gb-icon", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: path }),
  );
}

/**
 * Set text only where it differs, so that a hover or a selection survives.
 * @param {Element} node
 * @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Set or drop an attribute only where it differs.
 * @param {Element} node
 * @param {string} name
 * @param {string|null} value
 */
export function setAttribute(node, name, value) {
  if (value === null) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/**
 * Make `parent`'s children those of `items`, and re-use a child while its key stays.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => Element} create
 * @param {(node: any, item: T) => void} [update]
 */
export function reconcile(parent, items, keyOf, create, update) {
  const keys = items.map(keyOf);
  const wanted = new Set(keys);
  const old = new Map();
  for (const child of Array.from(parent.children)) {
    const key = /** @type {any} */ (child).__key;
    // First of all: what goes must not make those that stay move.
    if (wanted.has(key)) old.set(key, child);
    else child.remove();
  }
  let place = parent.firstElementChild;
  for (const [i, item] of items.entries()) {
    let node = old.get(keys[i]);
    if (node === undefined) {
      node = create(item);
      node.__key = keys[i];
    } else old.delete(keys[i]);
    if (update) update(node, item);
    if (node === place) place = node.nextElementSibling;
    else parent.insertBefore(node, place);
  }
}
