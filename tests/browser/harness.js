// @ts-check
/**
 * The workspace as the page has it: in a shadow root, with a document as data and a real server
 * behind it. `stage` is what the tests hold on to.
 */
import { mount, store } from "/assets/workspace.js";

const query = new URLSearchParams(location.search);
const host = /** @type {HTMLElement} */ (document.getElementById("host"));
const parentElement = host.attachShadow({ mode: "open" });
const told = {};

const page = await (await fetch(`/harness/document/${query.get("document") ?? "own"}`)).json();

const frame = () =>
  new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));

window.stage = {
  store: store(),
  told,
  root: parentElement,
  frame,
  show(document, session = null) {
    return mount({
      data: { document, version: 1, session },
      parentElement,
      setStateValue: (name, value) => (told[name] = value),
      setTriggerValue: (name, value) => (told[name] = value),
    });
  },
  packets() {
    return Array.from(parentElement.querySelectorAll(".gb-packet"), (node) => [
      node.getAttribute("data-connection"),
      node.getAttribute("data-events").split(" ").map(Number),
    ]);
  },
  async at(index) {
    this.store.seek(index);
    await frame();
    return this.packets();
  },
};
window.stage.cleanup = window.stage.show(page);
