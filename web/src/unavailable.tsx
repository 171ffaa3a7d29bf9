// Shown when the user requests a view that cannot show this recording: why, and which recordings it can show.
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { useApp } from "./app";
import { reason, useLoaded } from "./loading";
import { Recording } from "./recording";
import type { RecordingInfo } from "./types";
import { views, type View } from "./views";

/** Views that a stored recording may lack, but a running model has. */
const NEED_MODEL = ["arithmetic", "words", "next", "change"];
/** How many recordings are offered, the newest ones, so that the message has a line or two. */
const OFFERED = 3;

export function UnavailableView({ recording }: { recording: Recording }) {
  const { refused, selection } = useApp();
  const shown = selection.view.value;
  // in a layout effect, or it would undo what the next key requests
  useLayoutEffect(() => {
    refused.value = "";
  }, [recording.id, shown]);
  const view = views.find((each) => each.name === refused.value);
  return (
    <div role="status">
      {view && <Offer view={view} recording={recording} />}
    </div>
  );
}

/** Why the view has nothing to show; if the model is running, a button that records the same text again. */
function RunAgain({ view, recording }: { view: View; recording: Recording }) {
  const app = useApp();
  const { manifest } = recording;
  const running = useSignal(false);
  const problem = useSignal<string | null>(null);
  const stored = manifest.places.length === 0 && manifest.steps.length === 0;
  const model = stored && NEED_MODEL.includes(view.name) ? app.modelOf(manifest) : null;
  if (!model) return <span>{view.whyNot(manifest)}</span>;
  const run = async () => {
    running.value = true;
    problem.value = null;
    try {
      app.selection.choose({ recording: await app.record({ model: model.name, text: manifest.text }), view: view.name });
    } catch (error) {
      problem.value = reason(error);
    } finally {
      running.value = false;
    }
  };
  return (
    <>
      <span>{problem.value ?? `${view.title} needs the model, and this recording was stored without it.`}</span>
      <button type="button" class="primary" disabled={running.value} onClick={run}>
        {running.value ? "Running …" : `Run ${model.name} on this text`}
      </button>
    </>
  );
}

function Offer({ view, recording }: { view: View; recording: Recording }) {
  const { source, recordings, selection, refused } = useApp();
  const { value: found } = useLoaded(view.name, async () => {
    const names = recordings.value.map((each) => `${each.title}: ${each.text}`);
    const others = recordings.value.filter((each, at) => each.id !== recording.id && names.indexOf(names[at]) === at); // the newest of the same
    const opened = others.map(async (each): Promise<RecordingInfo[]> => {
      const { manifest } = await Recording.open(source, each.id);
      return view.whyNot(manifest) === null ? [each] : [];
    });
    return (await Promise.all(opened.map((each) => each.catch(() => [])))).flat().slice(0, OFFERED);
  });
  return (
    <div class="unavailable">
      <RunAgain view={view} recording={recording} />
      {found?.map((each) => (
        <button key={each.id} type="button" onClick={() => selection.choose({ recording: each.id, view: view.name })}>
          Open {each.title}
          {each.text && `: ${each.text.length > 40 ? `${each.text.slice(0, 39)}…` : each.text}`}
        </button>
      ))}
      <button type="button" aria-label="Close" onClick={() => (refused.value = "")}>
        ×
      </button>
    </div>
  );
}
