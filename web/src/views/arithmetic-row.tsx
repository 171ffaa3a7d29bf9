// The second half of the Arithmetic view: the softmax of the whole row, and the sum of weighted values.
import { useSignal } from "@preact/signals";
import { useApp } from "../app";
import { farthest, mixedOf, valueOf } from "../arithmetic";
import { Of } from "../formulas";
import { numberText, weightText } from "../sentence";
import { reach, VectorStrip } from "../vector-strip";
import type { ArithmeticCell } from "../arithmetic-cell";

const FEW = 24;
const HEAVIEST = 12;
const SHOWN = 4;

export function Softmax({ cell }: { cell: ArithmeticCell }) {
  const { selection } = useApp();
  const all = useSignal(false);
  const { row, recomputed, allowed, key, words, attention } = cell;
  const long = words.length > FEW;
  const heavy = new Set([...farthest(row.weights, HEAVIEST).places, key]);
  const shown = words.map((_, at) => at).filter((at) => !long || all.value || heavy.has(at));
  const others = new Set(words.keys());
  for (const at of shown) others.delete(at);
  const left = (numbers: ArrayLike<number>) => [...others].reduce((sum, at) => sum + numbers[at], 0); // not what is missing to the sum, which is rounded
  const total = row.weights.reduce((sum, weight) => sum + weight, 0);
  return (
    <>
      {long && (
        <VectorStrip
          name={<Of of="a" at="i" />}
          label={`The whole row: weights of ${words.length} keys`}
          values={row.weights}
          masked={allowed?.map((seen) => 1 - seen)}
          scale={{ kind: "signed", limit: reach(row.weights) }}
          cell={(at) => words[at]}
          onPick={(at) => selection.choose({ key: at })}
        />
      )}
      <table class="ledger softmax">
        <caption class="unseen">The row: score, power and weight of each key</caption>
        <thead>
          <tr>
            <th scope="col">key</th>
            <th scope="col">score</th>
            {row.bias && <th scope="col">+ bias</th>}
            <th scope="col">
              e<sup>s − m</sup>
            </th>
            <th scope="col" class="wide">
              weight
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((at) => {
            const hidden = allowed?.[at] === 0;
            return (
              <tr key={at} class={at === key ? "chosen" : ""}>
                <th scope="row">
                  <button type="button" aria-pressed={at === key} onClick={() => selection.choose({ key: at })}>
                    {words[at]}
                  </button>
                </th>
                <td>{numberText(row.scores[at])}</td>
                {row.bias && <td>{numberText(row.scores[at] + row.bias[at])}</td>}
                <td>{hidden ? "masked" : numberText(recomputed.powers[at])}</td>
                <td class={hidden ? "wide hatched-cell" : "wide"}>
                  <span class="bar" style={{ width: `calc((100% - 86px) * ${row.weights[at]})` }} />
                  <span class="number">{weightText(row.weights[at], 4)}</span>
                </td>
              </tr>
            );
          })}
        </tbody>
        <tfoot>
          {others.size > 0 && (
            <tr>
              <th scope="row">
                <button type="button" onClick={() => (all.value = true)}>
                  {others.size} others
                </button>
              </th>
              <td />
              {row.bias && <td />}
              <td>{numberText(left(recomputed.powers))}</td>
              <td class="wide">{weightText(left(row.weights), 4)}</td>
            </tr>
          )}
          <tr class="strong">
            <th scope="row">sum</th>
            <td>m = {Number.isFinite(recomputed.largest) ? numberText(recomputed.largest) : "none"}</td>
            {row.bias && <td />}
            <td>{numberText(recomputed.powerSum)}</td>
            <td class="wide">{weightText(total, 4)}</td>
          </tr>
        </tfoot>
      </table>
      {recomputed.powerSum === 0 && <p class="soft">Every key is masked for this word, so its output is zero.</p>}
      {attention.mask && !allowed?.includes(0) && <p class="soft">No key is masked for this word.</p>}
    </>
  );
}

export function Output({ cell }: { cell: ArithmeticCell }) {
  const { row, words, looker } = cell;
  const mixed = mixedOf(cell);
  const { places } = farthest(row.weights, SHOWN);
  const parts = places.map((at) => valueOf(cell, at).map((number) => number * row.weights[at]));
  const others = new Float64Array(mixed.length);
  row.weights.forEach((weight, at) => {
    if (!places.includes(at)) valueOf(cell, at).forEach((number, place) => (others[place] += weight * number));
  });
  const scale = { kind: "signed" as const, limit: reach(mixed, ...parts) };
  return (
    <>
      {places.map((at, place) => (
        <VectorStrip
          key={place}
          name={
            <>
              <span class="number">{weightText(row.weights[at], 3)}</span> × <em>{words[at]}</em>
            </>
          }
          label={`${weightText(row.weights[at], 3)} times the value of ${words[at]}`}
          values={parts[place]}
          scale={scale}
        />
      ))}
      {words.length > places.length && <VectorStrip name={`${words.length - places.length} others`} label="All other values, weighted and added up" values={others} scale={scale} />}
      <div class="total">
        <VectorStrip name={<Of of="y" at="i" word={looker} />} label={`Output of the head for ${looker}`} values={mixed} scale={scale} />
      </div>
    </>
  );
}
