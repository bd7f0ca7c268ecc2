// @ts-check
/** The tabs of the column beside the map. */
import { SIDES } from "../core/link.js";
import { CLAIMS, CLAIMS_TITLE } from "./claims.js";
import { CODE_TITLE } from "./code.js";

export const BESIDE = "Beside the map";

/** @type {Record<import("../core/link.js").SideName, [name: string, title: string]>} */
const NAMES = {
  inspector: ["Inspector", "What is selected, and how it stands at the cursor"],
  code: ["Code", CODE_TITLE],
  log: ["Log", "What vLLM's console would print of this engine"],
  rules: ["Rules", "Whether the engine's books agree: checked when you ask for it"],
  claims: [CLAIMS.name, CLAIMS_TITLE],
};

/** Id, name and title of each, in the order of a link's names. */
export const TABS = SIDES.map(
  (id) => /** @type {[string, string, string]} */ ([id, ...NAMES[id]]),
);

/** How much of the page's width the column has. */
export const WIDTH = {
  wider: "Wider",
  widerTitle: "Give this column more of the page's width",
  narrowerTitle: "Give the map its width back",
};
