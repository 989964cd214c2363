/** One strip for trust: band, tick and dot on the same axis wherever a plan appears. */
import type { Prediction } from "../api/types.ts";
import { change, gain } from "../words/format.ts";
import { missed, type Told } from "../words/verdicts.ts";

/** The axis: deviation from the promise. */
const [LEFT, RIGHT] = [-0.25, 0.15];

interface StripProps {
  promised: Prediction | null;
  measured?: Prediction | null;
  /** The window is not full yet: an open dot. */
  open?: boolean;
  fellShort?: boolean;
  width?: number;
}

export function PromiseStrip({ promised, measured, open, fellShort, width = 112 }: StripProps) {
  const centre = promised?.examples_per_second ?? 0;
  const x = (value: number): number => {
    const share = (value / centre - 1 - LEFT) / (RIGHT - LEFT);
    return Math.min(width - 4, Math.max(4, share * width));
  };
  if (!promised || centre <= 0) return <NoPromise width={width} />;
  const [low, high] = [x(promised.low), x(promised.high)];
  const off = gain(centre, measured?.examples_per_second);
  return (
    <svg class="c strip" width={width} height="16" role="img" aria-label={`promised${off === null ? ", not measured yet" : `, measured ${change(off, 1)} of it`}`}>
      <line class="axis" x1="0" x2={width} y1="8" y2="8" />
      <rect class="band" x={low} y="3" width={Math.max(2, high - low)} height="10" />
      <line class="tick" x1={x(centre)} x2={x(centre)} y1="3" y2="13" />
      {measured && <circle class={open ? "ring" : fellShort ? "fell" : "dot"} cx={x(measured.examples_per_second)} cy="8" r={open ? 3 : 3.5} />}
    </svg>
  );
}

function NoPromise({ width }: { width: number }) {
  return (
    <svg class="c strip" width={width} height="16" role="img" aria-label="nothing was promised">
      <line class="axis dashed" x1="0" x2={width} y1="8" y2="8" />
    </svg>
  );
}

export function PlanStrip({ told: { plan, verdict }, width }: { told: Told; width?: number }) {
  return (
    <PromiseStrip
      promised={plan.promised}
      measured={plan.outcome.measured}
      open={plan.state === "Applied"}
      fellShort={missed(verdict)}
      width={width}
    />
  );
}

/** What a strip is read by: the axis runs from −25 to +15 % of the promise. */
export function StripKey() {
  return (
    <span class="key" title="the axis runs from −25 to +15 % of the promise">
      <svg class="c" width="18" height="16" aria-hidden="true"><rect class="band" y="3" width="18" height="10" /><line class="tick" x1="9" x2="9" y1="3" y2="13" /></svg>promised
      <svg class="c" width="7" height="16" aria-hidden="true"><circle class="dot" cx="3.5" cy="8" r="3.5" /></svg>measured
      <svg class="c" width="7" height="16" aria-hidden="true"><circle class="fell" cx="3.5" cy="8" r="3.5" /></svg>missed
    </span>
  );
}

/** Gain of a recommendation: 0 and the 90 % interval on an axis in per cent. */
export function GainBar({ from, to, width = 404 }: { from: number; to: Prediction; width?: number }) {
  const share = (value: number): number => (value / from - 1) * 100;
  const [low, mid, high] = [share(to.low), share(to.examples_per_second), share(to.high)];
  const step = niceStep(Math.max(high, 0) - Math.min(low, 0));
  const [first, last] = [Math.floor(Math.min(low, 0) / step) * step, Math.ceil(Math.max(high, 0) / step) * step];
  const x = (value: number): number => 14 + ((value - first) / (last - first || 1)) * (width - 40);
  const ticks = Array.from({ length: Math.round((last - first) / step) + 1 }, (_, at) => first + at * step);
  return (
    <svg class="c gainbar" viewBox={`0 0 ${width} 42`} width={width} height="42" role="img" aria-label={`gain from ${Math.round(low)} to ${Math.round(high)} per cent`}>
      <line class="base" x1={x(first)} x2={x(last)} y1="14" y2="14" />
      <line class="zero" x1={x(0)} x2={x(0)} y1="7" y2="21" />
      <rect class="band" x={x(low)} y="8" width={Math.max(2, x(high) - x(low))} height="12" />
      <line class="tick" x1={x(mid)} x2={x(mid)} y1="8" y2="20" />
      {ticks.map((tick) => (
        <text class="ax m" key={tick} x={x(tick)} y="36">
          {tick > 0 ? `+${tick}` : String(tick).replace("-", "−")}{tick === last ? "\u00a0%" : ""}
        </text>
      ))}
    </svg>
  );
}

function niceStep(span: number): number {
  const rough = Math.max(span, 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  return ([1, 2, 5, 10].find((times) => times * power >= rough) ?? 10) * power;
}
