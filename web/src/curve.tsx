// A row of numbers as a curve around 0; hovering reads the numbers.
import { useSignal } from "@preact/signals";
import "./numbers.css";
import { numberText } from "./sentence";

export interface CurveProps {
  title: string;
  values: Float32Array;
  /** A marked index. */
  at?: number;
  name(place: number): string;
}

const HEIGHT = 100;

const axis = (value: number) => numberText(Math.abs(value) < 5e-4 ? 0 : value);

export function Curve({ title, values, at, name }: CurveProps) {
  const under = useSignal<number | null>(null);
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  const range = `${axis(low)} to ${axis(high)}`;
  const y = (value: number) => HEIGHT - ((value - low) / (high - low || 1)) * HEIGHT;
  const last = Math.max(1, values.length - 1);
  const path = Array.from(values, (value, place) => `${place ? "L" : "M"}${place} ${y(value).toFixed(1)}`).join("");
  const place = under.value !== null && under.value < values.length ? under.value : null;
  const point = (event: MouseEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    under.value = Math.max(0, Math.min(values.length - 1, Math.round(((event.clientX - box.left) / box.width) * last)));
  };
  const rule = (x: number, kind: string) => <path class={kind} d={`M${x} 0V${HEIGHT}`} />;
  return (
    <figure class="curve">
      <figcaption>
        <h3>{title}</h3>
        <span class="number">{place === null ? range : `${name(place)}: ${numberText(values[place])}`}</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${last} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}, a curve from ${range}`}
        onMouseMove={point}
        onMouseLeave={() => (under.value = null)}
      >
        <path class="zero" d={`M0 ${y(0)}H${last}`} />
        {at !== undefined && rule(at, "marked")}
        {place !== null && rule(place, "pointed")}
        <path class="line" d={path} />
      </svg>
    </figure>
  );
}
