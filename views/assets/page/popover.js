// @ts-check
/** A button and what it opens: Escape closes that again, and so does a press anywhere else. */

export class Popover {
  /**
   * @param {HTMLElement} corner that holds both
   * @param {HTMLElement} button
   * @param {HTMLElement} panel
   * @param {(open: boolean) => void} turned
   */
  constructor(corner, button, panel, turned) {
    this.button = button;
    this.panel = panel;
    this.turned = turned;
    panel.hidden = true;
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => this.open(!this.isOpen));
    corner.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.isOpen) return;
      event.preventDefault();
      this.open(false);
      button.focus();
    });
    this.onDown = (/** @type {PointerEvent} */ event) => {
      if (!event.composedPath().includes(corner)) this.open(false);
    };
    document.addEventListener("pointerdown", this.onDown);
  }

  destroy() {
    document.removeEventListener("pointerdown", this.onDown);
  }

  get isOpen() {
    return this.panel.hidden === false;
  }

  /** @param {boolean} open */
  open(open) {
    if (open === this.isOpen) return;
    this.panel.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    this.turned(open);
  }
}
