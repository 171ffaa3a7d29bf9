// The selected row as a real table: what the canvas shows, for reading and for screen readers.
import { useApp } from "./app";
import { heaviest, weightText } from "./sentence";
import { groupOf } from "./word-groups";

const LINES = 12;

export function RowTable() {
  const app = useApp();
  const { value: row, error } = app.row.value;
  if (error) return <p class="failure">{error}</p>;
  if (!row) return null;
  const keys = heaviest(row, LINES);
  const shown = keys.reduce((sum, key) => sum + row.values[key], 0);
  const total = row.values.reduce((sum, weight) => sum + weight, 0);
  const rest = row.keys.length - keys.length;
  const chosen = groupOf(row.keys, app.hover.value?.key ?? app.selection.key.value);
  return (
    <table class="row">
      <caption>
        <em>{row.queries.map((query) => query.name).join(" + ")}</em> looks at
      </caption>
      <thead class="unseen">
        <tr>
          <th scope="col">key</th>
          <th scope="col">weight</th>
        </tr>
      </thead>
      <tbody>
        {keys.map((key) => (
          <tr key={key} class={key === chosen ? "chosen" : ""}>
            <th scope="row">
              <button type="button" onClick={() => app.pick(null, row.keys[key].tokens[0], false)}>
                {row.keys[key].name}
              </button>
            </th>
            <td>
              <span class="bar" style={{ width: `calc((100% - 52px) * ${Math.min(1, row.values[key] / row.queries.length)})` }} />
              <span class="number">{weightText(row.values[key], 3)}</span>
            </td>
          </tr>
        ))}
      </tbody>
      {rest > 0 && (
        <tfoot>
          <tr>
            <th scope="row">{rest} more</th>
            <td>
              <span class="number">{weightText(Math.max(0, total - shown), 3)}</span>
            </td>
          </tr>
        </tfoot>
      )}
    </table>
  );
}
