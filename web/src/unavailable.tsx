// Shown when the user requests a view that cannot show this recording: why, and which recordings it can show.
import { useLayoutEffect } from "preact/hooks";
import { useApp } from "./app";
import { useLoaded } from "./loading";
import { Recording } from "./recording";
import type { RecordingInfo } from "./types";
import { views, type View } from "./views";

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

function Offer({ view, recording }: { view: View; recording: Recording }) {
  const { source, recordings, selection, refused } = useApp();
  const { value: found } = useLoaded(view.name, async () => {
    const others = recordings.value.filter((each) => each.id !== recording.id);
    const opened = others.map(async (each): Promise<RecordingInfo[]> => {
      const { manifest } = await Recording.open(source, each.id);
      return view.whyNot(manifest) === null ? [each] : [];
    });
    return (await Promise.all(opened.map((each) => each.catch(() => [])))).flat();
  });
  return (
    <div class="unavailable">
      <span>{view.whyNot(recording.manifest)}</span>
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
