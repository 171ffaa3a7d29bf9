// The entry point: mounts the page into #regard of a document, or into a notebook's widget through `render`.
import "./theme.css"; // before the styles of the views, which refine it
import { effect } from "@preact/signals";
import { render as mount } from "preact";
import { App, AppProvider } from "./app";
import { reason } from "./loading";
import { Shell } from "./shell";
import { ArchiveSource, HttpSource, KernelSource, type Source, type WidgetModel } from "./source";

function show(element: HTMLElement, source: Source, wide: boolean, theme: string | null = null): () => void {
  const app = new App(source, wide && usableLocation(), theme);
  element.classList.add("regard");
  const paint = effect(() => void (element.dataset.theme = app.dark.value ? "dark" : "light"));
  mount(
    <AppProvider value={app}>
      <Shell wide={wide} />
    </AppProvider>,
    element,
  );
  return () => {
    mount(null, element);
    paint();
    app.dispose();
  };
}

/** A page in an iframe (srcdoc) has no address to keep the selection in. */
function usableLocation(): boolean {
  return /^(https?|file):$/.test(location.protocol);
}

async function begin(element: HTMLElement): Promise<void> {
  try {
    const embedded = document.getElementById("regard-recordings");
    const source = embedded ? await ArchiveSource.decode(embedded.textContent ?? "") : new HttpSource();
    show(element, source, true, embedded?.dataset.theme ?? null);
  } catch (error) {
    element.textContent = `The page could not read its recordings. ${reason(error)}`;
  }
}

/** For anywidget. */
async function render({ model, el }: { model: WidgetModel; el: HTMLElement }): Promise<() => void> {
  const view = model.get("archive");
  const packed = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  const element = document.createElement("div");
  const height = model.get("height");
  if (height !== null) element.style.cssText = `height: ${height}px; overflow: auto`;
  el.append(element);
  const source = new KernelSource(await ArchiveSource.unpack(packed), model);
  const end = show(element, source, false, model.get("theme"));
  return () => {
    end();
    source.dispose();
  };
}

const place = document.getElementById("regard");
if (place) void begin(place);

export default { render };
