// @ts-check
/**
 * Notices that the document's file was written on the server, and has the page drawn anew.
 * Nothing is asked while nobody looks.
 */

const EVERY_MS = 3000;

export class DocumentWatch {
  constructor() {
    this.file = /** @type {string|null} */ (null);
    /** When what is drawn was written, and then what the server told last. */
    this.drawn = "";
    this.known = "";
    this.timer = 0;
    this.tell = /** @type {(() => void)|undefined} */ (undefined);
  }

  /**
   * @param {string|null} file what the server calls it; null: there is no file
   * @param {string} drawn when what is drawn of it was written
   * @param {() => void} [tell]
   */
  follow(file, drawn, tell) {
    this.tell = tell;
    if (file === this.file && drawn === this.drawn) return;
    this.file = file;
    this.drawn = this.known = drawn;
    clearInterval(this.timer);
    if (file !== null && tell) this.timer = window.setInterval(() => this.ask(), EVERY_MS);
  }

  async ask() {
    const { file } = this;
    if (file === null || document.hidden) return;
    try {
      const answer = await fetch(`/api/document?name=${encodeURIComponent(file)}`);
      if (!answer.ok || file !== this.file) return;
      const { changed } = await answer.json();
      if (changed === this.known) return;
      this.known = changed;
      this.tell?.();
    } catch {
      // The server is away: the stream says so, and the next question may be answered.
    }
  }
}
