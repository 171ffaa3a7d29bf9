// Where the page begins: mounted into #regard of a document, or by a notebook's widget through `render`.
import { render as mount } from "preact";
import { App, AppProvider } from "./app";
import { reason } from "./load";
import { Shell } from "./shell";
import { ContainerSource, HttpSource, type Source } from "./source";
import "./theme.css";

function show(element: HTMLElement, source: Source, wide: boolean): () => void {
  const app = new App(source, wide && usableLocation());
  element.classList.add("regard");
  mount(
    <AppProvider value={app}>
      <Shell wide={wide} />
    </AppProvider>,
    element,
  );
  return () => {
    mount(null, element);
    app.dispose();
  };
}

/** A page inside a page (srcdoc) has no address of its own to keep a selection in. */
function usableLocation(): boolean {
  return /^(https?|file):$/.test(location.protocol);
}

async function begin(element: HTMLElement): Promise<void> {
  try {
    const carried = document.getElementById("regard-recordings");
    show(element, carried ? await ContainerSource.decode(carried.textContent ?? "") : new HttpSource(), true);
  } catch (error) {
    element.textContent = `The page could not read what it carries. ${reason(error)}`;
  }
}

interface WidgetModel {
  get(name: "container"): DataView<ArrayBuffer>;
}

/** For anywidget. */
async function render({ model, el }: { model: WidgetModel; el: HTMLElement }): Promise<() => void> {
  const view = model.get("container");
  const packed = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  const element = document.createElement("div");
  el.append(element);
  return show(element, await ContainerSource.unpack(packed), false);
}

const place = document.getElementById("regard");
if (place) void begin(place);

export default { render };
