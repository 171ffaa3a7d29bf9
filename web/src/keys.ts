// The keyboard: one table, used by the listener and by the help.
import type { App } from "./app";
import { views } from "./views";

export interface Key {
  keys: string[];
  /** As the help shows it. */
  shown: string;
  what: string;
  act(app: App, key: string): void;
}

export const table: Key[] = [
  { keys: ["ArrowLeft", "ArrowRight"], shown: "← →", what: "head", act: (app, key) => moveHead(app, key === "ArrowLeft" ? -1 : 1) },
  { keys: ["ArrowUp", "ArrowDown"], shown: "↑ ↓", what: "layer", act: (app, key) => app.moveLayer(key === "ArrowUp" ? -1 : 1) },
  { keys: ["j", "k"], shown: "J K", what: "the word that looks: next, previous", act: (app, key) => app.move("query", key === "j" ? 1 : -1) },
  { keys: ["h", "l"], shown: "H L", what: "the word looked at: previous, next", act: (app, key) => app.move("key", key === "h" ? -1 : 1) },
  { keys: ["[", "]"], shown: "[ ]", what: "training step", act: (app, key) => moveStep(app, key === "[" ? -1 : 1) },
  { keys: [" "], shown: "Space", what: "play: step by step, or word by word", act: (app) => (app.playing.value = !app.playing.value) },
  { keys: ["1", "2", "3", "4", "5", "6", "7", "8", "9"], shown: "1 – 9", what: "view", act: showView },
  { keys: ["/"], shown: "/", what: "go to the text box", act: () => undefined },
  { keys: ["p"], shown: "P", what: "pin or unpin the word that looks", act: (app) => app.pin(app.selection.query.value) },
  { keys: ["x"], shown: "X", what: "change the model", act: showView },
  { keys: ["c"], shown: "C", what: "compare", act: showView },
  { keys: ["e"], shown: "E", what: "export", act: (app) => (app.exportOpen.value = !app.exportOpen.value) },
  { keys: ["?"], shown: "?", what: "this help", act: (app) => (app.helpOpen.value = !app.helpOpen.value) },
  { keys: ["Escape"], shown: "Esc", what: "close menus, or remove pins", act: clear },
];

function moveHead(app: App, by: number): void {
  app.selection.choose({ head: app.selection.head.value + by });
}

function moveStep(app: App, by: number): void {
  app.selection.choose({ step: app.selection.step.value + by });
}

function showView(app: App, key: string): void {
  const view = views.find((each) => each.key === key);
  const manifest = app.recording.value?.manifest;
  if (!view) return;
  if (!manifest || view.whyNot(manifest) === null) app.selection.choose({ view: view.name });
  else app.refused.value = view.name;
}

/** Close what is open; if nothing is, remove pins and the other side of a comparison. */
function clear(app: App): void {
  if (!close(app)) app.selection.choose({ pinned: [], partner: "" });
}

/** Close help, menu and messages, and stop playing; return whether there was something to close. */
function close(app: App): boolean {
  const open = app.helpOpen.value || app.exportOpen.value || app.refused.value !== "";
  app.helpOpen.value = false;
  app.exportOpen.value = false;
  app.refused.value = "";
  app.playing.value = false;
  app.hover.value = null;
  return open;
}

const TYPED = "textarea, [contenteditable], input:not([type=checkbox], [type=radio], [type=range])";

/** Whether a control handles this key itself: typing, Space on a button, arrows in a list. */
function isTaken(target: Element | null, key: string): boolean {
  if (!target) return false;
  if (target.closest(TYPED)) return key !== "Escape";
  if (key === " ") return target.closest("button, a, summary, select, input, [role=button]") !== null;
  return target.closest("select, input[type=range], input[type=radio]") !== null && key !== "Escape";
}

/** Listen for keys until the returned function is called. `focusText` is passed in because the text box belongs to the shell. */
export function listen(app: App, element: HTMLElement | Document, focusText: () => void): () => void {
  const onKey = (event: Event) => {
    if (element !== document) event.stopPropagation(); // a notebook around a widget has keys of its own
    const { key, ctrlKey, metaKey, altKey, target } = event as KeyboardEvent;
    if (!app.keysOn.value || ctrlKey || metaKey || altKey || event.defaultPrevented) return;
    const name = key.length === 1 ? key.toLowerCase() : key;
    const found = table.find((each) => each.keys.includes(name));
    if (!found || isTaken(target instanceof Element ? target : null, key)) return;
    event.preventDefault();
    const box = name === "Escape" && target instanceof Element ? target.closest<HTMLElement>(TYPED) : null;
    if (name === "/") focusText();
    else if (box) {
      box.blur(); // the first Escape leaves the box, and selects nothing else
      close(app);
    }
    else found.act(app, name);
  };
  element.addEventListener("keydown", onKey);
  return () => element.removeEventListener("keydown", onKey);
}
