// Look: ribbons from queries to keys for up to 64 tokens; a heat map for more, or on request.
import { useApp, useDrawing, type App } from "../app";
import { matrixSvg } from "../export";
import { axesOf, type Cell } from "../heatmap";
import { Matrix, type MatrixProps } from "../matrix";
import type { Picture } from "../picture";
import type { Recording } from "../recording";
import { Ribbons } from "../ribbons";
import { headName, kindTitles } from "../sentence";
import { RowTable } from "../row-table";
import { groupOf, type Group } from "../word-groups";

const RIBBONS = 64;

export function Look(_: { recording: Recording }) {
  const app = useApp();
  const { value: picture, error } = app.picture.value;
  if (error) return <p class="failure">{error}</p>;
  if (!picture) return null;
  const few = picture.queries.length <= RIBBONS && picture.keys.length <= RIBBONS && !picture.pooled;
  const map = !few || app.selection.map.value;
  return (
    <div class="look">
      <div class="picture">
        <div class="choices" role="group" aria-label="Drawn as">
          <button type="button" aria-pressed={!map} disabled={!few} onClick={() => app.selection.choose({ map: false })}>
            Ribbons
          </button>
          <button type="button" aria-pressed={map} onClick={() => app.selection.choose({ map: true })}>
            Heat map
          </button>
          <span class="soft">
            {kindTitles[picture.attention.kind]} {headName(picture.attention, picture.head)}
            {map && contactsOf(picture).length > 0 && "; outlined: likely contacts"}
            {!few && (picture.pooled ? ", each cell is the largest weight of a block of tokens" : `; ribbons show up to ${RIBBONS} tokens`)}
          </span>
        </div>
        {map ? <HeatMap picture={picture} /> : <Ribbons picture={picture} />}
      </div>
      <div class="beside">
        <RowTable />
      </div>
    </div>
  );
}

function HeatMap({ picture }: { picture: Picture }) {
  const app = useApp();
  const props = headMatrix(app, picture);
  useDrawing(() => matrixSvg(props, app.dark.value));
  return <Matrix {...props} />;
}

/** The cells of residues that the model believes to be in contact, in both directions. */
function contactsOf({ recording, attention, queries, keys, pooled }: Picture): Cell[] {
  if (attention.queries !== attention.keys || pooled) return [];
  const pairs = recording.manifest.contacts;
  return pairs
    .flatMap(([first, second]) => [[first, second], [second, first]])
    .map(([query, key]) => ({ row: groupOf(queries, query), column: groupOf(keys, key) }))
    .filter(({ row, column }) => row >= 0 && column >= 0);
}

/** What is written at the rows and columns of a head: names, or positions where they have no room. */
export function axisOf({ queries, keys }: Picture): Pick<MatrixProps, "rows" | "columns" | "positions"> {
  const first = (groups: Group[]) => groups.map((group) => group.tokens[0] + 1);
  return { rows: queries.map((group) => group.name), columns: keys.map((group) => group.name), positions: { rows: first(queries), columns: first(keys) } };
}

/** A head as a heat map, with the selected words marked. Hovering previews, clicking selects. */
export function headMatrix(app: App, picture: Picture): MatrixProps {
  const { query, pinned, key, root } = app.selection;
  const rows = [query.value, ...pinned.value].map((token) => groupOf(picture.queries, token)).filter((row) => row >= 0);
  const column = groupOf(picture.keys, key.value);
  return {
    label: `Heat map of ${kindTitles[picture.attention.kind]} ${headName(picture.attention, picture.head)}`,
    captions: axesOf(picture.attention.queries, picture.recording.manifest.noun),
    ...axisOf(picture),
    values: picture.values,
    masked: picture.masked,
    scale: { kind: "weight", root: root.value },
    marked: { rows, columns: column >= 0 ? [column] : [] },
    outlined: contactsOf(picture),
    onHover: (at) => (app.hover.value = at && { query: picture.queries[at.row].tokens[0], key: picture.keys[at.column].tokens[0] }),
    onPick: (at, shift) => app.pick(picture.queries[at.row].tokens[0], picture.keys[at.column].tokens[0], shift),
  };
}
