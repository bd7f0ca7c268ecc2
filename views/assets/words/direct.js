// @ts-check
/** What the teacher's page says of the map of the shared engine. */
export const DIRECT = { open: "Open its map, with the controls" };
