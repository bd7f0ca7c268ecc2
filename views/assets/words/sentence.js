// @ts-check
/** The sentence a view opens with: what a step did, made from its events alone. */
import { ASIDES } from "../core/records.js";
import { eventPhrase, fromWhom } from "./events.js";
import { capital, names, plural, span } from "./format.js";
import { seqs } from "./parts.js";

/** @import { EventRecord } from "../core/records.js" */
/** @import { Context, Part, Teller } from "./parts.js" */

/**
 * The sentence in parts, each with the sequence numbers of the events it was made of.
 * @param {EventRecord[]} events of the step at the cursor
 * @param {Teller} tell what a view says of a step that has events
 * @param {Context} [context]
 * @returns {Part[]}
 */
export function sentenceParts(events, tell, context = {}) {
  const failed = events.filter((event) => event.type === "engine_failed");
  if (failed.length > 0) {
    const others = events.filter((event) => event.type !== "engine_failed");
    const told = oneAfterTheOther("", failed);
    if (others.length === 0) return told;
    return [...told, { text: " ", seqs: [] }, ...sentenceParts(others, tell, context)];
  }
  const commands = events.filter((event) => event.phase === "command");
  const rest = events.filter((event) => event.phase !== "command");
  if (rest.length === 0 && commands.length > 0) {
    const told = commands.filter((event) => !ASIDES.has(event.type));
    const asked = told.filter((event) => event.type !== "memory_sized");
    const said = asked.length ? asked : told;
    return oneAfterTheOther(`At step ${commands[0].step}: `, said.length ? said : commands);
  }
  const step = rest.length > 0 ? rest[0].step : context.step;
  if (step === undefined) return [{ text: "Nothing has happened yet.", seqs: [] }];
  return tell(`Step ${step}`, events, context);
}

/** As many events are told in full; those before them are counted. */
const SHOWN = 4;

/** @param {string} opening @param {EventRecord[]} events @returns {Part[]} */
function oneAfterTheOther(opening, events) {
  const told = inGroups(events);
  const before = told.slice(0, -SHOWN).flat();
  /** @type {Part[]} */
  const clauses = told.slice(-SHOWN).map((group) => ({
    text: group.length > 1 ? submittedWords(group) : eventPhrase(group[0]),
    seqs: seqs(group),
  }));
  if (before.length > 0) {
    clauses.unshift({ text: plural(before.length, "more event"), seqs: seqs(before) });
  }
  /** @type {Part[]} */
  const parts = opening ? [{ text: opening, seqs: [] }] : [];
  parts.push(...clauses.map((part, i) => ({ ...part, text: `${i ? "; " : ""}${part.text}` })));
  parts.push({ text: ".", seqs: [] });
  return opening ? parts : capitalFirst(parts);
}

/** Submissions one after the other are told together. @param {EventRecord[]} events */
function inGroups(events) {
  /** @type {EventRecord[][]} */
  const groups = [];
  for (const event of events) {
    const last = groups[groups.length - 1];
    const joins =
      event.type === "request_submitted" &&
      last?.[0].type === event.type &&
      last[0].facts.source === event.facts.source;
    if (joins) last.push(event);
    else groups.push([event]);
  }
  return groups;
}

/** @param {EventRecord[]} events request_submitted, all from one source */
function submittedWords(events) {
  const of = (/** @type {string} */ name) => events.map((event) => event.facts[name]);
  return (
    `${plural(events.length, "request")} are submitted${fromWhom(of("source")[0])} ` +
    `(${names(of("request"))}; ${span(of("num_prompt_tokens"))} prompt tokens, ` +
    `at most ${span(of("max_tokens"))} to generate)`
  );
}

/** @param {Part[]} parts @returns {Part[]} */
function capitalFirst(parts) {
  const [first, ...rest] = parts;
  return [{ ...first, text: capital(first.text) }, ...rest];
}
