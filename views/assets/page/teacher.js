// @ts-check
/** What a tab keeps of its teacher: a pass, as long as the tab lives, so that a reload asks for no
 * secret. */

import { KeptSecret } from "./kept_secret.js";

/** @import { Secret } from "./kept_secret.js" */

const teacher = new KeptSecret(() => sessionStorage, "glassbox.teacher");

/**
 * Tell the server which pass this tab has, "" for none.
 * @param {{data: Secret, setStateValue: (name: string, value: any) => void}} component
 * @returns {() => void}
 */
export function mount({ data, setStateValue }) {
  const told = teacher.follow(data);
  if (told !== null) setStateValue("pass", told);
  return () => {};
}
