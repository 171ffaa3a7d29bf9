// Change: a list of changes of the model, and what it does then, beside what it did before, on the same tokens.
import { useApp } from "../app";
import { active, readChanges, writeChanges, type Change as OneChange } from "../change";
import { useKept, useLoaded } from "../loading";
import { Recording } from "../recording";
import type { Manifest } from "../types";
import { Chips, Controls, Vectors } from "./change-controls";
import { Effect, type Changed } from "./change-effect";
import "./change.css";

export function whyNoChange({ places, steps }: Manifest): string | null {
  if (places.length) return null;
  const remedy = "open the model itself: regard look TEXT -m RUN";
  return steps.length ? `Training snapshots hold weights but no model; ${remedy}` : `This recording has no model that could be changed; ${remedy}`;
}

export function Change({ recording }: { recording: Recording }) {
  const app = useApp();
  const { selection } = app;
  const changes = readChanges(selection.changes.value);
  const wanted = active(changes);
  const name = JSON.stringify(wanted);
  const { value, error } = useLoaded(name, async (): Promise<Changed | null> => {
    if (!wanted.length) return null;
    const { id, ...result } = await app.change(recording.id, wanted);
    return { ...result, recording: await Recording.open(app.source, id) };
  });
  const kept = useKept(value);
  const set = (next: OneChange[]) => selection.choose({ changes: writeChanges(next) });
  if (!app.live) return <p class="note">Changes need the model: open this text in a running viewer, with regard look TEXT -m RUN.</p>;
  return (
    <div class="change">
      <Chips changes={changes} manifest={recording.manifest} set={set} />
      <Controls recording={recording} add={(change) => set([...changes, change])} />
      <Vectors recording={recording} add={(change) => set([...changes, change])} />
      {error && <p class="failure">{error}</p>}
      {wanted.length > 0 && !error && kept && <Effect before={recording} changed={kept} changes={wanted} />}
      {wanted.length === 0 && <p class="soft">Nothing is changed: {recording.manifest.attentions.length ? "switch off the chosen head, and see what the model does without it." : "replace the vector of a token, and see what the model does then."}</p>}
    </div>
  );
}
