/** Promises beside what was measured: each band against its own centre, so that all compare. */
import { useRef } from "preact/hooks";
import type { Kept } from "../api/types.ts";
import { useWidth } from "../ui/width.ts";
import { change, fixed } from "../words/format.ts";

const ROW = 18;
const EDGE = { left: 76, right: 52 };
/** Ratios at which the axis is marked, from the narrowest range that holds all rows. */
const MARKS = [[0.8, 1, 1.25], [0.5, 1, 2], [0.25, 0.5, 1, 2, 4], [0.1, 1, 10]];

export function Promises({ kept }: { kept: readonly Kept[] }) {
  const host = useRef<HTMLDivElement>(null);
  const width = Math.max(260, useWidth(host));
  const rows = kept.map((one) => ({
    one,
    low: one.promised.low / one.promised.examples_per_second,
    high: one.promised.high / one.promised.examples_per_second,
    came: one.measured.examples_per_second / one.promised.examples_per_second,
  }));
  const far = Math.max(...rows.flatMap(({ low, high, came }) => [1 / low, high, came, 1 / came]));
  const marks = MARKS.find((some) => (some.at(-1) ?? 0) >= far) ?? MARKS[MARKS.length - 1] ?? [1];
  const [least, most] = [Math.log(marks[0] ?? 0.5), Math.log(marks.at(-1) ?? 2)];
  const plot = width - EDGE.left - EDGE.right;
  const x = (ratio: number): number =>
    EDGE.left + ((Math.min(most, Math.max(least, Math.log(ratio))) - least) / (most - least)) * plot;
  const height = rows.length * ROW + 24;
  return (
    <div ref={host}>
      <svg class="c" width={width} height={height} role="img" aria-label={spoken(kept)}>
        {marks.map((mark) => <line class={mark === 1 ? "base" : "grid"} key={mark} x1={x(mark)} x2={x(mark)} y1="2" y2={height - 20} />)}
        {rows.map(({ one, low, high, came }, index) => {
          const y = index * ROW + 11;
          return (
            <g key={`${one.job} ${one.generation}`}>
              <title>{`generation ${one.generation}: ${change(came - 1)} against the promise, ${one.inside ? "inside" : "outside"} its band`}</title>
              <text class="lb" x="0" y={y + 4}>g{one.generation}</text>
              <text class="ax e" x={EDGE.left - 12} y={y + 4}>at {one.replicas}</text>
              <rect class="band" x={x(low)} y={y - 6} width={Math.max(2, x(high) - x(low))} height="12" rx="2" />
              <line class="tick" x1={x(1)} x2={x(1)} y1={y - 6} y2={y + 6} />
              <circle class={came < low ? "fell" : "dot"} cx={x(came)} cy={y} r="3" />
              <text class={came < low ? "xt e" : "lb e"} x={width} y={y + 4}>{change(came - 1)}</text>
            </g>
          );
        })}
        {marks.map((mark) => <text class="ax m" key={mark} x={x(mark)} y={height - 4}>{fixed(mark, mark === 1 ? 0 : mark < 1 ? 2 : mark % 1 ? 2 : 0)}×</text>)}
      </svg>
    </div>
  );
}

function spoken(kept: readonly Kept[]): string {
  const told = kept.map((one) =>
    `generation ${one.generation}: ${change(one.measured.examples_per_second / one.promised.examples_per_second - 1)}, ${one.inside ? "inside" : "outside"}`);
  return `measured against promised; ${told.join("; ")}`;
}
