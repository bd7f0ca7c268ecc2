// @ts-check
/**
 * What the browser keeps of a class: the learner's secret, for all its tabs and for later. Where it
 * may keep nothing, this tab remembers it until it is reloaded.
 */

const KEY = "glassbox.learner";

/**
 * What the server has the browser keep since the latest joining or leaving (`turn`; null: nothing),
 * and what it was told last.
 * @typedef {{turn: number, secret: string|null, known: string|null}} Member
 */

let done = 0;
let kept = /** @type {string|null} */ (null);

/**
 * Keep what there is to keep, and tell the server where it knows another secret.
 * @param {Member|null} member null: the server keeps no class
 * @param {(name: string, value: any) => void} setStateValue
 */
export function followMember(member, setStateValue) {
  if (!member) return;
  if (member.turn > done) {
    done = member.turn;
    keep(member.secret);
  }
  const secret = recall() ?? "";
  if (secret !== (member.known ?? "")) setStateValue("member", secret);
}

/** @param {string|null} secret */
function keep(secret) {
  kept = secret;
  try {
    if (secret) localStorage.setItem(KEY, secret);
    else localStorage.removeItem(KEY);
  } catch {
    // This tab knows it all the same.
  }
}

/** @returns {string|null} */
function recall() {
  try {
    localStorage.setItem(`${KEY}.test`, "1");
    localStorage.removeItem(`${KEY}.test`);
    return localStorage.getItem(KEY);
  } catch {
    return kept;
  }
}
