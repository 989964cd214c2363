/** Workers by rank: step time against the median of all; neutral near it, then three ambers. */
import { useRef } from "preact/hooks";
import type { WorkerView } from "../api/types.ts";
import { useWidth } from "../ui/width.ts";
import { change, fixed, quantity, unitOfSteps } from "../words/format.ts";

const ROW = 14;
const EDGE = { left: 76, right: 52 };

/** Upper ends of neutral and the first two ambers, as deviation. */
const STEPS = [0.03, 0.08, 0.15];

export function RankStrip({ workers }: { workers: readonly WorkerView[] }) {
  const host = useRef<HTMLDivElement>(null);
  const width = Math.max(180, useWidth(host));
  const { unit, each } = unitOfSteps(workers.map((worker) => worker.step_seconds));
  const times = workers.map((worker) => worker.step_seconds * each);
  const [low, high] = [Math.min(...times) * 0.97, Math.max(...times) * 1.03];
  const plot = width - EDGE.left - EDGE.right;
  const x = (value: number): number => EDGE.left + ((value - low) / (high - low || 1)) * plot;
  const height = workers.length * ROW + 24;
  const ticks = [low, (low + high) / 2, high];
  return (
    <div ref={host}>
      <svg class="c" width={width} height={height} role="img" aria-label={spoken(workers)}>
        {ticks.map((tick) => <line class="grid" key={tick} x1={x(tick)} x2={x(tick)} y1="2" y2={height - 20} />)}
        {workers.map((worker, index) => {
          const y = index * ROW + 9;
          const fresh = workers[index - 1]?.replica !== worker.replica;
          return (
            <g key={worker.rank}>
              <title>{`rank ${worker.rank} on ${worker.node}: ${quantity(worker.step_seconds * each)} ${unit}, ${change(worker.deviation, 1)} against the median`}</title>
              {fresh && <text class="lb" x="0" y={y + 4}>r{worker.replica}</text>}
              <text class={worker.straggler ? "wb e" : "ax e"} x={EDGE.left - 12} y={y + 4}>{worker.rank}</text>
              <rect class={heat(worker.deviation)} x={EDGE.left} y={y - 5} width={plot} height="10" rx="1" />
              <circle class={worker.straggler ? "wd" : "dot"} cx={x(worker.step_seconds * each)} cy={y} r="2.5" />
              <text class={worker.straggler ? "wb e" : "lb e"} x={width} y={y + 4}>{fixed(worker.step_seconds * each, unit === "s" || worker.step_seconds < 0.1 ? 1 : 0)}</text>
            </g>
          );
        })}
        {ticks.map((tick) => <text class="ax m" key={tick} x={x(tick)} y={height - 4}>{quantity(tick)}</text>)}
        <text class="ax e" x={width} y={height - 4}>{unit}</text>
      </svg>
    </div>
  );
}

function heat(deviation: number): string {
  const level = STEPS.filter((step) => deviation > step).length;
  return level === 0 ? "h0" : `w${level}`;
}

function spoken(workers: readonly WorkerView[]): string {
  const late = workers.filter((worker) => worker.straggler).map((worker) => worker.rank);
  return `step time of ${workers.length} workers; ${late.length > 0 ? `stragglers: rank ${late.join(", ")}` : "no straggler"}`;
}
