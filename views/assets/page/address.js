// @ts-check
/**
 * The page's address and what it shows, held to each other: the fragment follows views, selection
 * and cursor, and a link that is opened is brought about as soon as its document and its log are
 * there. What cannot be is said and left out. The browser's way back brings a place about as a
 * link does, and takes away what was not there (`exact`).
 */
import { linkTo, nothing, parseLink, placeOf } from "../core/link.js";
import { messageOf, shortened } from "../words/format.js";
import { LINK } from "../words/reach.js";
import { Visits, isOurs } from "./visits.js";

/** @import { Link } from "../core/link.js" */
/** @import { Store } from "../core/store.js" */
/** @import { Side } from "./side.js" */
/**
 * @typedef {Object} Named what of a place the server shows, or has been told to show
 * @property {string|null} document
 * @property {string|null} lesson
 * @property {number|null} lesson_step
 * @property {string|null} compare
 * @property {string|null} setting
 * @property {string|null} a
 * @property {string|null} b
 * @typedef {Named & {turn: number, problems: string[]}} FromServer `turn`: of what it was told last
 */

/** The address is written once the page has been at rest for so long. */
const REST_MS = 400;
/** How long a log that comes from its engine may take until a moment is missed in it. */
const PATIENCE_MS = 4000;
/** The same of the server's part of a place. */
const SERVER_PATIENCE_MS = 30_000;
/** What of the query belongs into a link; the server reads it. */
const QUERY = /** @type {const} */ (["document", "lesson"]);
/** What of the fragment is the server's to show. */
const SERVED = /** @type {const} */ (["lesson_step", "compare", "setting", "a", "b"]);

export class Address {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** What of a link is still to be brought about. */
    this.scene = /** @type {Link|null} */ (null);
    this.moment = /** @type {Link|null} */ (null);
    /** Whether what is brought about is all that is to be shown. */
    this.exact = false;
    /** What of the link was left out, and why. @type {string[]} */
    this.problems = [];
    this.isFetching = false;
    /** While a place is brought about, none is left. */
    this.isActing = false;
    this.openedAt = 0;
    this.timer = 0;
    /** The column beside the map. @type {Side|null} */
    this.side = null;
    /** What the server shows; null: it has not said. @type {FromServer|null} */
    this.named = null;
    /** Tells the server what to show. @type {((place: any) => void)|undefined} */
    this.tell = undefined;
    /** The turn that is waited for, and the one given last. */
    this.turn = this.told = 0;
    this.visits = new Visits(() => this.here);
    this.openFirst();
    this.onPop = (/** @type {PopStateEvent} */ event) =>
      this.open(location.hash, isOurs(event.state));
  }

  /** Follow and obey from now on; returns what ends that. @returns {() => void} */
  listen() {
    addEventListener("popstate", this.onPop);
    this.store.onLeave = () => this.visits.leave();
    const stopVisits = this.visits.listen();
    const unsubscribe = this.store.subscribe(() => this.update());
    return () => {
      removeEventListener("popstate", this.onPop);
      clearTimeout(this.timer);
      stopVisits();
      unsubscribe();
    };
  }

  /** What the server shows now; `update` comes after it. @param {FromServer|null} named */
  heard(named) {
    if (named && named.turn === this.turn && this.named?.turn !== named.turn)
      this.problems.push(...named.problems);
    const isFirst = this.named === null;
    const before = this.named;
    if (before && named && before.turn === named.turn && isElsewhere(before, named))
      this.visits.leave();
    this.named = named;
    if (isFirst && this.scene) this.tellServer(this.scene);
  }

  // -- a link is opened --------------------------------------------------------------------------

  /**
   * What the page itself wrote here is no link that somebody opens: after a reload the tab's own
   * memory knows most of it, and better. A file that was open is remembered nowhere else, nor
   * is what the server showed.
   */
  openFirst() {
    this.open(location.hash);
    if (!isOurs(history.state) || !this.scene) return;
    this.problems = [];
    if (!this.moment?.file && !this.moment?.saved) this.moment = null;
    const known = { view: null, box: null, room: null, request: null, block: null };
    this.scene = { ...this.scene, ...known };
  }

  /** @param {string} fragment @param {boolean} [exact] and nothing else */
  open(fragment, exact = false) {
    const found = parseLink(fragment) ?? (exact ? { link: nothing(), odd: [] } : null);
    if (!found) return;
    const { link, odd } = found;
    clearTimeout(this.timer);
    this.exact = exact;
    this.problems = odd.map((part) => LINK.odd(shortened(part, 60)));
    this.scene = link;
    const leads = link.trace ?? link.saved ?? link.step ?? link.seq ?? link.engine;
    this.moment = leads === null && !exact ? null : link;
    this.openedAt = performance.now();
    this.tellServer(link);
    this.store.changed();
  }

  /** Have the server show its part, where it is another than that on show. @param {Link} link */
  tellServer(link) {
    const { named, exact } = this;
    // Before it has said what it shows, the query was read by it, and the rest is told then.
    if (!named || !this.tell) return;
    const asked = new URLSearchParams(location.search);
    const query = QUERY.map((part) => [part, asked.get(part)]);
    const served = SERVED.map((part) => [part, link[part]]);
    const wanted = exact ? [...query, ...served] : served.filter(([, value]) => value !== null);
    const shown = /** @type {Record<string, any>} */ (named);
    const isThere = wanted.every(([part, value]) => shown[String(part)] === value);
    if (isThere && named.turn >= this.turn) return; // or it is about to go elsewhere
    this.turn = this.told = Math.max(this.told, named.turn) + 1;
    this.tell({ turn: this.turn, exact, ...Object.fromEntries(wanted) });
  }

  /** Whether the server still has to show what it was told. */
  get awaitsServer() {
    if (!this.named || this.named.turn >= this.turn) return false;
    if (performance.now() - this.openedAt < SERVER_PATIENCE_MS) return true;
    this.turn = this.named.turn; // it is away
    return false;
  }

  update() {
    const { store } = this;
    if (this.awaitsServer) return this.again();
    this.isActing = true;
    try {
      if (store.document && this.scene) this.showScene(this.scene);
      if (this.moment) this.reach(this.moment);
    } finally {
      this.isActing = false;
    }
    this.follow();
  }

  /** @param {Link} link */
  showScene(link) {
    const { store, exact } = this;
    this.scene = null;
    const { views, components } = store.document;
    if (link.view) {
      if (views?.some((view) => view.id === link.view)) store.setView(link.view);
      else this.problems.push(LINK.noView(shortened(link.view, 60)));
    }
    if (link.room && !store.canOpen(link.room))
      this.problems.push(LINK.noRoom(shortened(link.room, 60)));
    else if (link.room || exact) store.openBox(link.room);
    const box = link.box;
    const isThere = box !== null && components.some((item) => item.id === box);
    if (box !== null && !isThere) this.problems.push(LINK.noBox(shortened(box, 60)));
    const { request, block } = link;
    if (exact || isThere || request !== null || block !== null)
      store.select({ component: isThere ? box : null, request, block }, link.trace);
    this.showBeside(link);
  }

  /** @param {Link} link */
  showBeside({ side, claim }) {
    const claims = claim === null ? [] : claim.split(",").map(Number);
    if (claims.length || side !== null || this.exact)
      this.side?.showLinked(claims.length ? "claims" : (side ?? "inspector"), claims);
  }

  /** Bring about the link's moment, if it can be by now. @param {Link} link */
  reach(link) {
    const { store, exact } = this;
    if (!this.hasLog(link)) return;
    const place = placeOf(store, link);
    const isPatient = store.live && performance.now() - this.openedAt < PATIENCE_MS;
    if (place === undefined && isPatient) return void this.again();
    this.moment = null;
    if (place === undefined) this.problems.push(LINK.noMoment);
    else if (place !== null) store.seek(place);
    else if (exact && store.live) store.goLive();
    const { request, block } = link;
    // Another log may have come first, in which they were nobody.
    if (request !== null || block !== null) store.select({ request, block });
    if (request !== null && !knows(store, request))
      this.problems.push(LINK.noRequest(shortened(request, 60)));
    if (block !== null && !Object.hasOwn(store.state.blocks ?? {}, block))
      this.problems.push(LINK.noBlock(block));
    this.showBeside(link); // what is selected comes before it
    store.changed();
  }

  /** Whether the link's log is on show; where it can be had, it is sent for. @param {Link} link */
  hasLog(link) {
    const { store } = this;
    const { saved, file, trace } = link;
    if (saved !== null) {
      if (!store.live && store.traceName === saved && store.savedPath) return true;
      if (store.link?.key) void this.fetch(link, saved, () => this.savedTrace(saved));
      return false;
    }
    const isShown = store.header && (trace === null || store.header.trace_id === trace);
    const held = file !== null && trace !== null && !isShown ? store.files.get(trace) : undefined;
    if (held) {
      void this.fetch(link, /** @type {string} */ (file), () => held.text());
      return false;
    }
    if (file === null && (this.exact || link.engine)) {
      store.link?.choose(link.engine && store.sharedOffered ? link.engine : "own");
      if (!store.live) store.backToLive();
    }
    return store.header !== null && (trace === null || store.header.trace_id === trace);
  }

  /** @param {string} path in the server's folder of traces */
  savedTrace(path) {
    return /** @type {any} */ (this.store.link).savedTrace(path);
  }

  /** Look again later: nothing may change until then. */
  again() {
    setTimeout(() => this.store.changed(), PATIENCE_MS / 4);
  }

  /**
   * Open a link's file.
   * @param {Link} link @param {string} name @param {() => Promise<string>} read
   */
  async fetch(link, name, read) {
    const { store } = this;
    if (this.isFetching) return;
    this.isFetching = true;
    try {
      const text = await read();
      if (this.moment === link) {
        store.openTrace(text, name, link.saved !== null);
        if (link.trace === null || store.header.trace_id === link.trace) return;
        this.problems.push(LINK.otherFile(shortened(name, 60)));
        this.moment = null;
      }
    } catch (error) {
      this.problems.push(LINK.noFile(shortened(name, 60), messageOf(error)));
      this.moment = null;
    } finally {
      this.isFetching = false;
      store.changed();
    }
  }

  /** What is to be said of the link, or "". */
  get notice() {
    return this.problems.length ? LINK.leftOut(this.problems) : "";
  }

  /** Which log the link waits for, or "": it is opened, and the link goes on. */
  get awaited() {
    const { store, moment } = this;
    if (!moment?.trace || moment.saved || !store.header) return "";
    if (store.header.trace_id === moment.trace) return "";
    return LINK.awaits(
      shortened(moment.trace, 40),
      moment.file === null ? null : shortened(moment.file, 60),
    );
  }

  /** Leave out what is missing. */
  dismiss() {
    this.problems = [];
    this.moment = null;
    this.store.changed();
  }

  // -- the address follows -----------------------------------------------------------------------

  /** Whether another place is being brought about than the one on show. */
  get isHeld() {
    const { scene, moment, isActing } = this;
    const isComing = scene !== null || moment !== null || this.awaitsServer;
    return isActing || isComing || !this.isQueryShown;
  }

  /** Whether the server shows what the query names: a change of it comes before what it shows. */
  get isQueryShown() {
    const { named } = this;
    const asked = new URLSearchParams(location.search);
    return named === null || QUERY.every((part) => asked.get(part) === named[part]);
  }

  /** The place, as a fragment; null where it is not to be told. */
  get here() {
    return this.isHeld || !this.store.document ? null : linkTo(this.store, this.beside);
  }

  /** What is shown beside the map. @returns {Partial<Link>} */
  get beside() {
    const { side, named } = this;
    const served = SERVED.map((part) => [part, named?.[part] ?? null]);
    const shown = side && side.shown !== "inspector" ? side.shown : null;
    return {
      .../** @type {Partial<Link>} */ (Object.fromEntries(served)),
      side: shown,
      claim: shown === "claims" ? side?.claims.numbers.join(",") : null,
    };
  }

  follow() {
    clearTimeout(this.timer);
    if (this.isHeld || !this.store.document) return;
    if (!isOurs(history.state)) this.visits.replace();
    else this.timer = window.setTimeout(() => this.visits.replace(), REST_MS);
  }

  /** A link to this very moment. */
  get link() {
    const asked = new URLSearchParams(location.search);
    const kept = new URLSearchParams();
    for (const part of QUERY) {
      const value = asked.get(part);
      if (value !== null) kept.set(part, value);
    }
    const query = kept.size ? `?${kept}` : "";
    const { origin, pathname } = location;
    return `${origin}${pathname}${query}#${linkTo(this.store, this.beside, true)}`;
  }
}

/** Whether a user would say that he has gone somewhere. @param {Named} before @param {Named} now */
function isElsewhere(before, now) {
  const isCompared = (before.compare === null) !== (now.compare === null);
  return isCompared || before.lesson_step !== now.lesson_step;
}

/** Whether a log speaks of a request at all. @param {Store} store @param {string} id */
function knows(store, id) {
  if (Object.hasOwn(store.state.requests ?? {}, id)) return true;
  return store.records.some((record) => record.kind === "event" && record.facts.request === id);
}
