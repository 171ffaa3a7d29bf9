// The text box: run a model on a new query. Only if the page has a server.
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { useApp } from "./app";
import { reason, useKept } from "./loading";
import type { ModelInfo } from "./types";

export function QueryForm() {
  const app = useApp();
  const name = useSignal("");
  const text = useSignal<string | null>(null);
  const target = useSignal("");
  const image = useSignal<File | undefined>(undefined);
  const running = useSignal(false);
  const problem = useSignal<string | null>(null);
  const asked = useSignal<string | null>(null);
  const manifest = useKept(app.recording.value)?.manifest;
  // the query stays in the box until its recording is open; what is typed meanwhile is kept
  useLayoutEffect(() => {
    if (asked.value !== null && asked.value === text.value) text.value = null;
    asked.value = null;
  }, [manifest]);
  const shown = manifest?.text ?? "";
  const models = app.models.value;
  if (!app.live || !models.length) return <p class="text">{shown}</p>;

  // until the user chooses a model, the one that made the recording, or that was changed or trained: "NAME (changed)", "NAME, training"
  const title = manifest?.title ?? "";
  const makes = (each: ModelInfo) => [each.name, `${each.name} (changed)`, `${each.name}, training`].includes(title);
  const model = models.find((each) => each.name === name.value) ?? models.find(makes) ?? models[0];
  const translates = model.verbs.includes("translate");
  const run = async (event: Event) => {
    event.preventDefault();
    const given = text.value ?? shown;
    running.value = true;
    problem.value = null;
    try {
      const recording = await app.record({
        model: model.name,
        text: given,
        ...(translates && target.value && { target: target.value }),
        ...(model.image && image.value && { image: await base64(image.value) }),
      });
      app.selection.choose({ recording });
      asked.value = given;
    } catch (error) {
      problem.value = reason(error);
    } finally {
      running.value = false;
    }
  };
  const trouble = problem.value ?? model.error;
  const state = model.error ? "" : !model.ready ? "The model is loading …" : running.value ? "Running …" : "";
  return (
    <>
      <form class="ask" onSubmit={run}>
        {model.image ? (
          <label class="field grow">
            <span>Image</span>
            <input type="file" accept="image/*" data-text onChange={(event) => (image.value = event.currentTarget.files?.[0])} />
          </label>
        ) : (
          <label class="field grow">
            <span>Text</span>
            <input
              type="text"
              data-text
              title={`${BREAK} is a line break (Shift+Enter)`}
              value={inOneLine(text.value ?? shown)}
              onInput={(event) => (text.value = inLines(event.currentTarget.value))}
              onPaste={(event) => insert(event, event.clipboardData?.getData("text") ?? "")}
              onKeyDown={(event) => event.key === "Enter" && event.shiftKey && insert(event, "\n")}
            />
          </label>
        )}
        {translates && (
          <label class="field">
            <span>Translation (optional)</span>
            <input type="text" value={target.value} onInput={(event) => (target.value = event.currentTarget.value)} />
          </label>
        )}
        <label class="field">
          <span>Model</span>
          <select value={model.name} onChange={(event) => (name.value = event.currentTarget.value)}>
            {models.map((each) => (
              <option key={each.name} value={each.name}>
                {each.name}
                {each.what && ` (${each.what})`}
              </option>
            ))}
          </select>
        </label>
        <button type="submit" class="primary" disabled={!model.ready || running.value}>
          Run
        </button>
      </form>
      <p class={`status ${trouble ? "failure" : "soft"}`} role="status">
        {trouble ?? state}
      </p>
    </>
  );
}

/** A box of one line cannot hold a line break, which language models read and write; it shows this sign instead. */
const BREAK = "⏎";
const inOneLine = (text: string) => text.replace(/\r\n?|\n/g, BREAK);
const inLines = (text: string) => text.replaceAll(BREAK, "\n");

/** Insert a text with line breaks, which the browser would leave out; this command, unlike others, can be undone. */
function insert(event: Event, text: string): void {
  if (!/[\r\n]/.test(text)) return;
  event.preventDefault();
  document.execCommand("insertText", false, inOneLine(text));
}

/** The bytes of a file as base64. */
async function base64(file: File): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let characters = "";
  for (const byte of bytes) characters += String.fromCharCode(byte);
  return btoa(characters);
}
