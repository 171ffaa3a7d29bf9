// The residues of a protein, and below them the states that a model predicts.
import type { Recording } from "./recording";

const LINE = 10;

/** The residues that a recording reads; "" if it reads no protein. */
export function lettersOf({ manifest }: Recording): string {
  const tokens = manifest.noun === "residue" ? Object.values(manifest.sequences)[0] : [];
  return tokens.filter((token) => !token.special).map((token) => token.text).join("");
}

/** The letters of residues in groups of ten, each below the number of its first; below them their states, in which what differs from
 * the first is marked. */
export function Residues({ letters, states }: { letters: string; states: string[] }) {
  const [first, ...others] = states;
  const begins = Array.from({ length: Math.ceil(letters.length / LINE) }, (_, at) => at * LINE);
  return (
    <p class="residues">
      {begins.map((begin) => (
        <span key={begin}>
          <span class="soft">{begin + 1}</span>
          <span>{letters.slice(begin, begin + LINE)}</span>
          <strong>{first.slice(begin, begin + LINE)}</strong>
          {others.map((other, line) => (
            <strong key={line}>{[...other.slice(begin, begin + LINE)].map((state, at) => (state === first[begin + at] ? state : <mark key={at}>{state}</mark>))}</strong>
          ))}
        </span>
      ))}
    </p>
  );
}
