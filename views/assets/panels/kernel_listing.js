// @ts-check
/**
 * The kernels as text: their source, and what Triton's compiler makes of it for a GPU that need not
 * be there. Fetched when it is opened; a line is a text node, whatever it holds.
 */
import { el, setText } from "../page/dom.js";
import { truth } from "../page/truth.js";
import { bytes, plural } from "../words/format.js";

/** @import { Store } from "../core/store.js" */

/**
 * @typedef {{kernel: string, arch: number, dtype: string, seconds: number, num_warps: number,
 *   registers: number, spilled_bytes: number, shared_bytes: number, text: string | null,
 *   shape: {heads: number, kv_heads: number, head_dim: number, block_size: number}}} Listing
 */

/** @type {Record<string, string>} */
const TEXTS = {
  source: "Python source",
  ttir: "TTIR",
  ttgir: "TTGIR",
  ptx: "PTX",
  sass: "SASS",
};
/** @type {Record<string, string>} */
const GPUS = {
  80: "sm_80 (A100)",
  89: "sm_89 (L4, RTX 4090)",
  90: "sm_90 (H100)",
  100: "sm_100 (B200)",
};
const COMPILER_HOW = "Triton's compiler, for this GPU and the shape of this engine's model";
const MOST_LINES = 20_000;

export class Listings {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.at = -1; // of `found`, the line that the search is at
    this.turn = 0; // an answer to an older question is nobody's any more
    /** @type {{kernels: string[], file: string, source: string} | null} */
    this.sources = null;
    /** @type {HTMLElement[]} */
    this.lines = [];
    /** @type {HTMLElement[]} */
    this.found = [];
    const changed = () => void this.load();
    this.text = choice("Text", TEXTS, "source", changed);
    this.kernel = choice("Kernel", {}, "", changed);
    this.gpu = choice("GPU", GPUS, "90", changed);
    this.dtype = choice("dtype", { bf16: "bf16", fp32: "fp32" }, "bf16", changed);
    this.search = /** @type {HTMLInputElement} */ (
      el("input", {
        type: "search",
        class: "gbp-ksearch",
        placeholder: "Search, Enter for the next",
        "aria-label": "Search the text",
        oninput: () => this.find(),
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
      })
    );
    this.hits = el("span", { class: "gbp-more", role: "status" });
    this.facts = el("p", { class: "gbp-more", role: "status" });
    this.code = el("pre", {
      class: "gbp-kcode",
      tabindex: "0", // it scrolls
      role: "region",
      "aria-label": "The text",
    });
    this.element = /** @type {HTMLDetailsElement} */ (
      el(
        "details",
        { class: "gbp-klisting", ontoggle: () => this.opened() },
        el("summary", { text: "The kernels as text: source, TTIR, PTX, SASS" }),
        el(
          "div",
          { class: "gbp-kask" },
          ...[this.text, this.kernel, this.gpu, this.dtype].map(({ label }) => label),
          el("div", { class: "gbp-kfind" }, this.search, this.hits),
        ),
        this.facts,
        this.code,
      )
    );
  }

  opened() {
    if (this.element.open && !this.lines.length) void this.load();
  }

  async load() {
    const turn = (this.turn += 1);
    const { link } = this.store;
    const [text, kernel] = [this.text.value, this.kernel.value];
    for (const each of [this.gpu, this.dtype]) each.node.disabled = text === "source";
    if (!link || !this.store.live) {
      setText(this.facts, "A saved trace has no server behind it to ask.");
      return;
    }
    setText(this.facts, text === "source" ? "Reading …" : "Compiling …");
    try {
      this.sources ??= await link.request("GET", "/api/kernels");
      if (!kernel && this.sources) this.kernel.offer(this.sources.kernels);
      const made = text === "source" ? null : await this.compiled(text);
      if (turn === this.turn) this.show(made);
    } catch (error) {
      if (turn !== this.turn) return;
      this.write([]);
      setText(this.facts, error instanceof Error ? error.message : String(error));
    }
  }

  /** @param {string} text @returns {Promise<Listing>} */
  compiled(text) {
    const query = new URLSearchParams({ text, arch: this.gpu.value, dtype: this.dtype.value });
    const kernel = encodeURIComponent(this.kernel.value);
    return /** @type {any} */ (this.store.link).request("GET", `/api/kernels/${kernel}?${query}`);
  }

  /** @param {Listing | null} made null: the source */
  show(made) {
    if (made) {
      this.facts.replaceChildren(...factsOf(made));
      this.write((made.text ?? "").split("\n"));
      this.code.scrollTop = 0;
      return;
    }
    const { file, source } = /** @type {NonNullable<typeof this.sources>} */ (this.sources);
    const lines = source.split("\n");
    setText(this.facts, `${file}: what runs on a GPU, and above in the interpreter.`);
    this.write(lines);
    const name = this.kernel.value.replace(/_split$/, "");
    this.scrollTo(this.lines[lines.findIndex((line) => line.startsWith(`def ${name}_kernel`))]);
  }

  /** @param {string[]} lines */
  write(lines) {
    this.lines = lines.slice(0, MOST_LINES).map((text) => el("span", { text: `${text}\n` }));
    this.code.replaceChildren(...this.lines);
    this.find();
  }

  find() {
    for (const line of this.found) line.classList.remove("is-hit", "is-here");
    const wanted = this.search.value.trim().toLowerCase();
    this.found = wanted
      ? this.lines.filter((line) => line.textContent?.toLowerCase().includes(wanted))
      : [];
    for (const line of this.found) line.classList.add("is-hit");
    setText(this.hits, wanted ? plural(this.found.length, "line") : "");
    this.at = -1;
    if (this.found.length) this.next(1);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key !== "Enter" || !this.found.length) return;
    this.next(event.shiftKey ? -1 : 1);
    event.preventDefault();
  }

  /** @param {number} by */
  next(by) {
    this.found[this.at]?.classList.remove("is-here");
    this.at = (this.at + by + this.found.length) % this.found.length;
    this.found[this.at].classList.add("is-here");
    this.scrollTo(this.found[this.at]);
  }

  /** Within the text alone: the page stays where it is. @param {HTMLElement | undefined} line */
  scrollTo(line) {
    if (line) this.code.scrollTop = line.offsetTop - this.code.offsetTop - 40;
  }
}

/** @param {Listing} made @returns {(Node|string)[]} */
function factsOf(made) {
  const { heads, kv_heads: kv, head_dim: dim, block_size: size } = made.shape;
  const measured = (/** @type {string} */ text) => truth("measured", COMPILER_HOW, text);
  return [
    measured(`${plural(made.registers, "register")} a thread`),
    ", ",
    measured(`${made.spilled_bytes ? bytes(made.spilled_bytes) : "none"} spilled`),
    ", ",
    measured(`${bytes(made.shared_bytes)} of shared memory a program`),
    `, ${plural(made.num_warps, "warp")}; for ${plural(heads, "query head")} on ` +
      `${plural(kv, "KV head")}, ${dim} wide, ${plural(size, "token")} a block. No GPU was asked.`,
  ];
}

/**
 * @param {string} name @param {Record<string, string>} texts @param {string} value
 * @param {() => void} changed
 */
function choice(name, texts, value, changed) {
  const node = /** @type {HTMLSelectElement} */ (
    el("select", { class: "gb-select", "aria-label": name, onchange: changed })
  );
  const option = (/** @type {string} */ key, /** @type {string} */ text) =>
    el("option", { value: key, text });
  node.append(...Object.entries(texts).map(([key, text]) => option(key, text)));
  node.value = value;
  return {
    node,
    label: el("label", { class: "gbp-kchoice" }, el("span", { text: name }), node),
    get value() {
      return node.value;
    },
    /** @param {string[]} names */
    offer(names) {
      node.replaceChildren(...names.map((key) => option(key, key)));
      node.value = names.find((key) => key === "paged_decode") ?? names[0];
    },
  };
}
