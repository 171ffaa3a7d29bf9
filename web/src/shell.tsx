// The page around the views: query form, list of recordings, tabs, grid of heads, help and export.
import { useSignal } from "@preact/signals";
import { useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";
import { useApp } from "./app";
import { QueryForm } from "./query-form";
import { UnavailableView } from "./unavailable";
import { download, pictureCsv, rasterise } from "./export";
import { HeadGrid } from "./head-grid";
import { listen, table } from "./keys";
import { reason } from "./loading";
import type { Recording } from "./recording";
import { exactly } from "./picture";
import { headName, Sentence } from "./sentence";
import { views } from "./views";
import { notation } from "./word-groups";

export function Shell({ wide }: { wide: boolean }) {
  const app = useApp();
  const root = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = root.current;
    if (!element) return;
    const focusText = () => element.querySelector<HTMLElement>("[data-text]")?.focus();
    return listen(app, wide ? document : element, focusText);
  }, [app, wide]);
  const recording = app.recording.value;
  return (
    <div class="shell" ref={root}>
      <header>
        <h1>regard</h1>
        <QueryForm />
        <Recordings />
        <div class="actions">
          <ExportMenu />
          <button type="button" onClick={() => (app.helpOpen.value = true)}>
            Help
          </button>
        </div>
      </header>
      {recording ? <Opened recording={recording} /> : <Closed />}
      <footer>
        <p class="caution">A weight is not an explanation.</p>
        {recording?.manifest.attentions.length !== 0 && <p>Rows are queries, columns are keys; each row sums to 1.</p>}
      </footer>
      <Help />
    </div>
  );
}

function Closed() {
  const { failure } = useApp();
  return <main class="closed">{failure.value ? <p class="failure">{failure.value}</p> : <p class="soft">Opening …</p>}</main>;
}

function Opened({ recording }: { recording: Recording }) {
  const { selection, substitute } = useApp();
  const { manifest } = recording;
  const fitting = views.filter((view) => view.whyNot(manifest) === null);
  const attends = manifest.attentions.length > 0;
  const first = fitting.find((each) => each.name === (attends ? "look" : "states")) ?? fitting[0];
  const view = fitting.find((each) => each.name === selection.view.value) ?? first;
  const signs = view?.unnamed ? [] : notation(manifest);
  return (
    <>
      <Tabs recording={recording} current={view?.name ?? ""} />
      <UnavailableView recording={recording} />
      <div class={attends ? "body" : "body alone"}>
        {attends && (
          <nav aria-label="Heads">
            <HeadGrid key={recording.id} recording={recording} />
            <Options />
          </nav>
        )}
        <main aria-label={view?.title ?? "Nothing to show"}>
          {view && <h2 class="unseen">{view.title}</h2>}
          {attends && !view?.says && <Sentence />}
          {substitute.value === recording.id && (
            <p class="note" role="status">
              The recording that this address names is gone; only the last ones are kept. This is another one.
            </p>
          )}
          {manifest.notes.map((note) => (
            <p class="note" key={note}>
              {note}
            </p>
          ))}
          {signs.length > 0 && <p class="soft notation">{signs.join(" ")}</p>}
          {view ? <view.component key={recording.id} recording={recording} /> : <p class="soft">No view can show this recording.</p>}
        </main>
      </div>
    </>
  );
}

function Tabs({ recording, current }: { recording: Recording; current: string }) {
  const { selection, refused } = useApp();
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const tab = list.current?.querySelector<HTMLElement>("[aria-selected=true]");
    if (tab && list.current) list.current.scrollLeft = tab.offsetLeft - list.current.offsetLeft - (list.current.clientWidth - tab.offsetWidth) / 2;
  }, [current]);
  return (
    <nav aria-label="Views">
      <div class="tabs" role="tablist" aria-label="Views" ref={list}>
        {views.map((view) => {
          const why = view.whyNot(recording.manifest);
          return (
            <button
              key={view.name}
              type="button"
              role="tab"
              aria-selected={view.name === current}
              aria-disabled={why !== null}
              aria-description={why ?? undefined}
              title={why ?? `${view.title} (key ${view.key.toUpperCase()})`}
              onClick={() => (why === null ? selection.choose({ view: view.name }) : (refused.value = view.name))}
            >
              {view.title} <kbd aria-hidden="true">{view.key.toUpperCase()}</kbd>
            </button>
          );
        })}
      </div>
    </nav>
  );
}

function Recordings() {
  const { choices, selection } = useApp();
  if (choices.value.length < 2) return null;
  return (
    <label class="field">
      <span>Recording</span>
      <select value={selection.recording.value} onChange={(event) => selection.choose({ recording: event.currentTarget.value })}>
        {choices.value.map((each) => (
          <option key={each.id} value={each.id}>
            {each.title}
            {each.text && `: ${each.text.length > 40 ? `${each.text.slice(0, 39)}…` : each.text}`}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Options for pieces of words and special tokens. */
function Options() {
  const { selection, recording } = useApp();
  const sequences = recording.value?.manifest.sequences ?? {};
  const tokens = Object.values(sequences).flat();
  const pieces = tokens.some((token, index) => token.word >= 0 && token.word === tokens[index + 1]?.word);
  const specials = tokens.some((token) => token.special);
  const flags = [
    { name: "merge", title: "steps" in sequences ? "Merge steps into agents" : "Merge pieces into words", shown: pieces },
    { name: "hide", title: "Hide special tokens", shown: specials },
    { name: "renormalise", title: "Renormalise the rest to 1", shown: specials && selection.hide.value },
  ] as const;
  return (
    <div class="options">
      {flags.map(
        (flag) =>
          flag.shown && (
            <label key={flag.name}>
              <input type="checkbox" checked={selection[flag.name].value} onChange={(event) => selection.choose({ [flag.name]: event.currentTarget.checked })} />{" "}
              {flag.title}
            </label>
          ),
      )}
    </div>
  );
}

function ExportMenu() {
  const app = useApp();
  const { value: picture } = app.picture.value;
  const recording = app.recording.value;
  const name = picture ? `${picture.recording.id}-${picture.attention.id}-${headName(picture.attention, picture.head)}` : (recording?.id ?? "regard");
  const menu = useRef<HTMLDivElement>(null);
  const problem = useSignal<string | null>(null);
  const writing = useSignal(false);
  const id = useId();
  const open = app.exportOpen.value;
  // in a layout effect, so that the next key goes to the open menu
  useLayoutEffect(() => {
    if (open) menu.current?.querySelector<HTMLElement>("button:not(:disabled)")?.focus();
    else problem.value = null;
  }, [open]);
  const save = async (make: () => Promise<Blob> | Blob, ending: string, title = name) => {
    problem.value = null;
    try {
      download(await make(), `${title}.${ending}`);
      app.exportOpen.value = false;
    } catch (error) {
      problem.value = reason(error);
    }
  };
  const svg = () => app.drawing.value?.() ?? "";
  /** The server writes the page, or says why it is too large. */
  const savePage = async (id: string) => {
    writing.value = true;
    await save(async () => new Blob([await app.source.get(`export/${id}.html`)], { type: "text/html" }), "html", `regard-${id}`);
    writing.value = false;
  };
  return (
    <div class="menu">
      <button type="button" aria-expanded={open} aria-controls={id} onClick={() => (app.exportOpen.value = !open)}>
        Export
      </button>
      <div id={id} ref={menu} hidden={!open}>
        <button type="button" disabled={!app.drawing.value} onClick={() => save(() => new Blob([svg()], { type: "image/svg+xml" }), "svg")}>
          Picture (SVG)
        </button>
        <button type="button" disabled={!app.drawing.value} onClick={() => save(() => rasterise(svg()), "png")}>
          Picture (PNG)
        </button>
        <button type="button" disabled={!picture} onClick={() => picture && save(async () => new Blob([pictureCsv(await exactly(picture, app.arrangement()))], { type: "text/csv" }), "csv")}>
          This head (CSV)
        </button>
        {app.source.linked && recording && (
          <button type="button" disabled={writing.value} onClick={() => savePage(recording.id)}>
            {writing.value ? "Writing the file …" : "This page as one file (HTML)"}
          </button>
        )}
        <p class={problem.value ? "failure" : "soft"} role="status">
          {problem.value}
        </p>
      </div>
    </div>
  );
}

function Help() {
  const app = useApp();
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  const open = app.helpOpen.value;
  useLayoutEffect(() => {
    if (open && !dialog.current?.open) dialog.current?.showModal();
    if (!open) dialog.current?.close();
  }, [open]);
  return (
    // the close event comes late, when the dialog may be open again
    <dialog ref={dialog} aria-labelledby={id} onClose={() => (app.helpOpen.value = dialog.current?.open ?? false)}>
      <h2 id={id}>Help</h2>
      <p>
        Each picture shows one head: a row is a query (a word that looks), a column is a key (a word looked at), and the weights of a row
        sum to 1. Hover to preview, click to select, shift-click to add up several words.
      </p>
      <dl>
        {table.map((each) => (
          <div key={each.shown}>
            <dt>
              <kbd>{each.shown}</kbd>
            </dt>
            <dd>{each.what}</dd>
          </div>
        ))}
      </dl>
      <label>
        <input type="checkbox" checked={app.keysOn.value} onChange={(event) => (app.keysOn.value = event.currentTarget.checked)} /> Keyboard shortcuts
      </label>
      <button type="button" onClick={() => (app.helpOpen.value = false)}>
        Close
      </button>
    </dialog>
  );
}
