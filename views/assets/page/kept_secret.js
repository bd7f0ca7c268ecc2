// @ts-check
/**
 * A secret that the browser keeps for its visitor. Where it may keep nothing, this tab remembers it
 * until it is reloaded.
 */

/**
 * What the server has the browser keep since the latest change (`turn`; null: nothing), and what
 * it was told last (null: nothing yet).
 * @typedef {{turn: number, secret: string|null, known: string|null}} Secret
 */

export class KeptSecret {
  /**
   * @param {() => Storage} storage `localStorage`: for all tabs and for later; `sessionStorage`:
   *   for this tab
   * @param {string} key
   */
  constructor(storage, key) {
    this.storage = storage;
    this.key = key;
    this.done = 0;
    this.kept = /** @type {string|null} */ (null);
  }

  /**
   * Keep what there is to keep; what the server is to be told, null where it knows.
   * @param {Secret} secret
   * @returns {string|null}
   */
  follow(secret) {
    if (secret.turn > this.done) {
      this.done = secret.turn;
      this.keep(secret.secret);
    }
    const kept = this.recall() ?? "";
    return kept === secret.known ? null : kept;
  }

  /** @param {string|null} secret */
  keep(secret) {
    this.kept = secret;
    try {
      if (secret) this.storage().setItem(this.key, secret);
      else this.storage().removeItem(this.key);
    } catch {
      // This tab knows it all the same.
    }
  }

  /** @returns {string|null} */
  recall() {
    try {
      this.storage().setItem(`${this.key}.test`, "1");
      this.storage().removeItem(`${this.key}.test`);
      return this.storage().getItem(this.key);
    } catch {
      return this.kept;
    }
  }
}
