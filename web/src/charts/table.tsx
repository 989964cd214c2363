/** The same numbers as a table, for those who read rather than look. */
import { useState } from "preact/hooks";
import { compared, seconds } from "../words/format.ts";
import { type Panel, valueAt } from "./measures.ts";

const ROWS = 40;

interface TableProps {
  panels: readonly Panel[];
  gap: number;
}

export function StackTable(props: TableProps) {
  const [open, setOpen] = useState(false);
  return (
    <details class="astable" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>View as table</summary>
      {open && <Numbers {...props} />}
    </details>
  );
}

function Numbers({ panels, gap }: TableProps) {
  const all = panels[0]?.lines[0]?.points.map(({ at }) => at) ?? [];
  const step = Math.max(1, Math.ceil(all.length / ROWS));
  const rows = all.filter((_, index) => (all.length - 1 - index) % step === 0).reverse();
  const lines = panels.flatMap((panel) =>
    panel.lines.map((line) => ({ ...line, title: `${panel.title} ${line.label === "now" ? "" : line.label}`.trim(), unit: panel.unit })),
  );
  return (
    <table class="tbl dense">
      <thead>
        <tr>
          <th>Time</th>
          {lines.map((line) => <th class="num" key={line.title}>{line.title} <span class="u">{line.unit}</span></th>)}
        </tr>
      </thead>
      <tbody>
        {rows.map((at) => (
          <tr key={at}>
            <td>{seconds(at * 1000)}</td>
            {lines.map((line) => <td class="num" key={line.title}>{compared(valueAt(line.points, at, gap))}</td>)}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
