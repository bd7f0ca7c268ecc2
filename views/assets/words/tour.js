// @ts-check
/** What is said in tour mode, and in the window of its notes. */

export const TOUR = {
  bar: "Tour",
  back: "Back",
  next: "Next",
  notes: "Notes",
  leave: "Leave",
  notesTitle: "The presenter's notes, in a window of their own",
  leaveTitle: "Back to the whole page (Esc)",
  waits: "This step waits for something to be done in it before it goes on.",
  none: "No lesson is being presented. Start one, and press f.",
  noNotes: "This step has no notes.",
  end: "The lesson ends here.",
};

/** @param {number} place @param {number} steps */
export const placeText = (place, steps) => `${place} of ${steps}`;

/** @param {string|null} title of the next step */
export const nextText = (title) => (title === null ? TOUR.end : `Next: ${title}`);

/** @param {number} seconds */
export function elapsedText(seconds) {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  const rest = two(Math.floor(seconds) % 60);
  return hours ? `${hours}:${two(minutes)}:${rest}` : `${minutes}:${rest}`;
}
