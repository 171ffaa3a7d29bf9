// Thumbnails of all heads. HeadGrid is the grid on the left: a block for each kind, layers down, heads across.
import { useLayoutEffect, useRef } from "preact/hooks";
import { useApp } from "./app";
import { bitmap } from "./colour";
import { useKept, useLoaded } from "./loading";
import type { Recording, Thumbnail as Small } from "./recording";
import { headName, kindTitles } from "./sentence";
import type { AttentionKind } from "./types";

export function Thumbnail({ thumbnail }: { thumbnail: Small }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { rows, columns, values } = thumbnail;
  useLayoutEffect(() => {
    const weights = Float32Array.from(values, (byte) => byte / 255);
    canvas.current?.getContext("2d")?.putImageData(bitmap(weights, rows, columns, { kind: "weight", root: true }, false), 0, 0);
  }, [values, rows, columns]);
  return <canvas ref={canvas} class="thumbnail" width={columns} height={rows} aria-hidden="true" />;
}

interface HeadButtonProps {
  thumbnail: Small;
  /** Whether Tab reaches only the chosen head, since the arrow keys go to the others. */
  alone?: boolean;
  children?: preact.ComponentChildren;
}

export function HeadButton({ thumbnail, alone, children }: HeadButtonProps) {
  const { selection } = useApp();
  const { attention, head } = thumbnail;
  const chosen = selection.attention.value === attention.id && selection.head.value === head;
  const name = `${kindTitles[attention.kind]} ${headName(attention, head)}`;
  return (
    <button
      type="button"
      class="head"
      aria-pressed={chosen}
      tabIndex={alone && !chosen ? -1 : 0}
      aria-label={children ? undefined : name}
      title={name}
      onClick={() => selection.choose({ attention: attention.id, head })}
    >
      <Thumbnail thumbnail={thumbnail} />
      {children}
    </button>
  );
}

export function HeadGrid({ recording }: { recording: Recording }) {
  const { selection, keysOn } = useApp();
  const grid = useRef<HTMLDivElement>(null);
  const { attention, head, step } = selection.choice.value;
  useLayoutEffect(() => {
    if (grid.current?.querySelector(".head:focus")) grid.current.querySelector<HTMLElement>(".head[aria-pressed=true]")?.focus();
  }, [attention, head]);
  const { value, error } = useLoaded(String(step), () => recording.overview(step));
  const thumbnails = useKept(value);
  if (error) return <p class="failure">{error}</p>;
  if (!thumbnails) return null;
  const kinds = [...new Set(recording.manifest.attentions.map((each) => each.kind))];
  return (
    <div class="blocks" ref={grid}>
      {kinds.map((kind) => (
        <Block key={kind} kind={kind} thumbnails={thumbnails.filter((each) => each.attention.kind === kind)} alone={keysOn.value} />
      ))}
    </div>
  );
}

function Block({ kind, thumbnails, alone }: { kind: AttentionKind; thumbnails: Small[]; alone: boolean }) {
  const layers = [...new Set(thumbnails.map((each) => each.attention.layer))];
  return (
    <section class="block" aria-label={`Heads: ${kindTitles[kind]}`}>
      <h2>{kindTitles[kind]}</h2>
      {layers.map((layer) => (
        <div class="layer" key={layer}>
          <span class="number">L{layer}</span>
          {thumbnails
            .filter((each) => each.attention.layer === layer)
            .map((each) => (
              <HeadButton key={each.head} thumbnail={each} alone={alone} />
            ))}
        </div>
      ))}
    </section>
  );
}
