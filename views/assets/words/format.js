// @ts-check
/** How numbers, lists and texts look, for every module of the page. */

const LONGEST_LINE = 2000; // characters; no line on the page holds more

const GROUPED = new Intl.NumberFormat("en-US");

/** `16384` -> `16,384`. @param {number} n @returns {string} */
export function count(n) {
  return GROUPED.format(n);
}

/** A speed in words: `1 step/s`, `0.5 steps/s`. @param {number|string} rate */
export const paceText = (rate) => `${rate} ${Number(rate) === 1 ? "step" : "steps"}/s`;

/** `plural(1, "token")` -> `1 token`. @param {number} n @param {string} word @returns {string} */
export function plural(n, word) {
  if (n === 1) return `1 ${word}`;
  const many = /[^aeiou]y$/.test(word)
    ? `${word.slice(0, -1)}ies`
    : /(s|x|ch|sh)$/.test(word)
      ? `${word}es`
      : `${word}s`;
  return `${count(n)} ${many}`;
}

/**
 * A counted subject with its verb: `does(1, "token", "runs", "run")` -> `1 token runs`.
 * @param {number} n @param {string} word @param {string} one @param {string} many
 */
export function does(n, word, one, many) {
  return `${plural(n, word)} ${n === 1 ? one : many}`;
}

/** Three significant digits, never an exponent. @param {number} n @returns {string} */
function short(n) {
  if (n >= 100) return count(Math.round(n));
  return n >= 10 ? n.toFixed(1) : n.toFixed(2);
}

/** `9 to 12`, or `9` where they are all the same. @param {number[]} numbers */
export function span(numbers) {
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  return least === most ? count(least) : `${count(least)} to ${count(most)}`;
}

/** Names that follow each other as a range: `r0–r6`. @param {string[]} names */
export function names(names) {
  const numbers = names.map((name) => /^(\D*)(\d+)$/.exec(name));
  const first = numbers[0];
  const inOrder =
    names.length > 2 &&
    first &&
    numbers.every((each, i) => each?.[1] === first[1] && Number(each[2]) === Number(first[2]) + i);
  return inOrder ? `${names[0]}–${names[names.length - 1]}` : list(names, 6);
}

/** Bytes in steps of 1,000. @param {number} n @returns {string} */
export function bytes(n) {
  if (n < 1000) return `${Math.round(n)} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = n / 1000;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${short(value)} ${units[unit]}`;
}

/** Microseconds as µs, ms or s. @param {number} n @returns {string} */
export function micros(n) {
  if (n < 999.5) return n < 10 ? `${n.toFixed(1)} µs` : `${Math.round(n)} µs`;
  if (n < 999_500) return `${short(n / 1000)} ms`;
  return `${short(n / 1e6)} s`;
}

/** A share as a percentage. @param {number} share 0 to 1 @returns {string} */
export function percent(share) {
  const value = share * 100;
  return `${value === 0 || value >= 9.95 ? value.toFixed(0) : value.toFixed(1)} %`;
}

/**
 * `["a", "b", "c"]` -> `a, b and c`; what is above `most` is counted.
 * @param {string[]} words @param {number} [most] @returns {string}
 */
export function list(words, most = 4) {
  if (words.length > most) {
    const shown = words.slice(0, most - 1);
    return `${shown.join(", ")} and ${count(words.length - shown.length)} more`;
  }
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}

/**
 * Numbers in the order given, runs of three or more drawn together: `4–6, 9`.
 * @param {readonly number[]} ids @param {number} [most] runs shown @returns {string}
 */
export function ranges(ids, most = 5) {
  /** @type {[number, number, number][]} first, last, direction */
  const runs = [];
  for (const id of ids) {
    const run = runs[runs.length - 1];
    if (run && run[2] !== -1 && id === run[1] + 1) [run[1], run[2]] = [id, 1];
    else if (run && run[2] !== 1 && id === run[1] - 1) [run[1], run[2]] = [id, -1];
    else runs.push([id, id, 0]);
  }
  /** @type {string[]} */
  const words = [];
  let shown = 0;
  for (const [first, last] of runs) {
    if (words.length >= most) break;
    const size = Math.abs(last - first) + 1;
    if (size === 1) words.push(`${first}`);
    else if (size === 2) words.push(`${first}`, `${last}`);
    else words.push(`${first}–${last}`);
    shown += size;
  }
  const rest = ids.length - shown;
  if (rest > 0) return `${words.join(", ")} and ${count(rest)} more`;
  return list(words, words.length + 1);
}

/** `block 4` or `blocks 4, 5`. @param {readonly number[]} ids @param {number} [most] */
export function blockList(ids, most = 5) {
  return `${ids.length === 1 ? "block" : "blocks"} ${ranges(ids, most)}`;
}

/** Text of a token with its spaces and line ends visible. @param {string} text @returns {string} */
export function visible(text) {
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}

/**
 * A token by its text, with all in it that would not be seen made visible.
 * @param {string} text @returns {string}
 */
export function tokenName(text) {
  if (text === "") return "(no text)";
  return text.replace(/[\p{C}\p{Z}]/gu, (letter) => {
    if (letter === " ") return "␣";
    const shown = visible(letter);
    return shown === letter ? `⟨U+${codeOf(letter)}⟩` : shown;
  });
}

/** @param {string} letter */
function codeOf(letter) {
  return (letter.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
}

/** Text in quotes, cut to `most` characters. @param {string} text @param {number} [most] */
export function quote(text, most = 24) {
  return `“${shortened(visible(text), most)}”`;
}

/** @param {string} text with a capital letter first */
export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** @param {unknown} error */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Text cut to `most` characters, an ellipsis among them.
 * @param {string} text @param {number} most
 */
export function shortened(text, most) {
  // Of a text without end only the beginning is looked at; a character is two units at most.
  const letters = [...text.slice(0, 2 * most + 2)];
  if (letters.length <= most) return text;
  return `${letters.slice(0, most - 1).join("").trimEnd()}…`;
}

/**
 * Cut text until it fits, with an ellipsis where something is gone.
 * @param {string} text @param {(text: string) => boolean} fits longer texts fit no better
 */
export function fitted(text, fits) {
  const start = text.slice(0, LONGEST_LINE);
  if (start === text && fits(text)) return text;
  const letters = [...start];
  let [low, high] = [1, Math.max(1, letters.length)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (fits(`${letters.slice(0, middle).join("")}…`)) low = middle;
    else high = middle - 1;
  }
  return `${letters.slice(0, low).join("").trimEnd()}…`;
}
