// @ts-check
/** What the browser keeps of a class: the learner's secret, for all its tabs and for later. */

import { KeptSecret } from "./kept_secret.js";

/** @import { Secret } from "./kept_secret.js" */

const learner = new KeptSecret(() => localStorage, "glassbox.learner");

/**
 * Keep what there is to keep, and tell the server where it knows another secret.
 * @param {Secret|null} member null: the server keeps no class
 * @param {(name: string, value: any) => void} setStateValue
 */
export function followMember(member, setStateValue) {
  if (!member) return;
  const told = learner.follow(member);
  if (told || (told === "" && member.known)) setStateValue("member", told);
}
