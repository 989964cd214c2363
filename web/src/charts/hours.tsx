/** Accelerators by quarter-hour: at work, held idle, and below the line what plans made needless. */
import { useRef } from "preact/hooks";
import { planLook } from "../ui/badges.tsx";
import { Mark } from "../ui/icons.tsx";
import { HatchPattern } from "../ui/parts.tsx";
import { useWidth } from "../ui/width.ts";
import { count, fixed, percent, quantity, seconds } from "../words/format.ts";
import { textWidth } from "../words/labels.ts";
import { area, before, counted, type Hours, hoursOf, savedOf, steps } from "../words/hours.ts";
import { timeTicks, valueTicks } from "../words/ticks.ts";
import { merged, tally, type Told } from "../words/verdicts.ts";

const [TOP, ZERO, LEFT, LABELS] = [30, 141, 36, 176];
/** Width of a mark with the space around it. */
const MARK = 20;

interface StripProps {
  of: Hours;
  since: string;
  until: string;
  plans: readonly Told[];
}

export function HoursStrip({ of, since, until, plans }: StripProps) {
  const host = useRef<HTMLDivElement>(null);
  const width = Math.max(280, useWidth(host));
  const wide = width >= 640;
  const right = width - (wide ? LABELS : 0);
  const stacked = of.buckets.map((bucket) => bucket.working + bucket.idle);
  const ticks = valueTicks(Math.max(of.capacity, ...stacked));
  const top = ticks.at(-1) ?? 1;
  const [begin, end] = [Date.parse(since) / 1000, Date.parse(until) / 1000];
  const x = (at: number): number => LEFT + (at / of.buckets.length) * (right - LEFT);
  const instant = (at: number): number => LEFT + ((at - begin) / (end - begin)) * (right - LEFT);
  const y = (value: number): number => ZERO - (value / top) * (ZERO - TOP);
  const working = of.buckets.map((bucket) => bucket.working);
  const saved = of.buckets.map((bucket) => -Math.max(0, bucket.saved));
  const low = Math.max(ZERO + 6, y(Math.min(0, ...saved)));
  const height = low + 26;
  const none = of.buckets.map(() => 0);
  return (
    <div ref={host}>
      <svg class="c" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={spoken(of)}>
        <Before buckets={before(of.buckets)} x={x} />
        <path class="work" d={area(working, none, x, y)} />
        <path class="idle" d={area(stacked, working, x, y)} />
        <path class="idl" d={steps(stacked, x, y)} />
        <path class="ob" d={steps(working, x, y)} />
        <path class="saved" d={area(none, saved, x, y)} />
        {ticks.slice(1, -1).map((tick) => <path class="gridw" key={tick} d={`M${LEFT} ${y(tick)}H${right}`} />)}
        <path class="cap" d={`M${LEFT} ${y(of.capacity)}H${right}`} />
        <path class="base" d={`M${LEFT} ${ZERO}H${right}`} />
        {ticks.map((tick) => <text class="ax e" key={tick} x={LEFT - 8} y={y(tick) + 4}>{whole(tick)}</text>)}
        {timeTicks(begin, end, wide ? 8 : 4).map((at) => <text class="ax m" key={at} x={Math.min(instant(at), width - 16)} y={height - 4}>{seconds(at * 1000).slice(0, 5)}</text>)}
        <Plans plans={plans} x={instant} from={begin} to={end} right={width} />
        {wide && <Labels of={of} x={right + 14} end={width} ready={y(of.capacity)} />}
      </svg>
      {!wide && <p class="n">{spoken(of)}</p>}
      {counted(of) && <p class="cap12">{counted(of)}</p>}
      <AsTable of={of} />
    </div>
  );
}

/** Hours before the first job are drawn as such: nothing is missing from them. */
function Before({ buckets, x }: { buckets: number; x: (at: number) => number }) {
  const width = x(buckets) - x(0);
  const text = "no job ran";
  if (buckets === 0) return null;
  return (
    <g>
      <HatchPattern />
      <rect x={x(0)} y={TOP} width={width} height={ZERO - TOP} fill="url(#hatch)" />
      {width > textWidth(text) + 8 && <text class="ax m" x={x(buckets / 2)} y={(TOP + ZERO) / 2}>{text}</text>}
    </g>
  );
}

/** Marks of plans where their state last changed; one that would cover the count of another joins it. */
function Plans({ plans, x, from, to, right }: { plans: readonly Told[]; x: (at: number) => number; from: number; to: number; right: number }) {
  const groups: { at: number; plans: [Told, ...Told[]] }[] = [];
  const dated = plans.map((told) => ({ at: Date.parse(told.plan.updated_at) / 1000, told })).sort((one, other) => one.at - other.at);
  for (const { at, told } of dated.filter(({ at }) => at >= from && at <= to)) {
    const last = groups.at(-1);
    if (last && x(at) - last.at < MARK + textWidth(merged([...last.plans, told]).text)) last.plans.push(told);
    else groups.push({ at: x(at), plans: [told] });
  }
  return (
    <>
      <text class="ax e" x={LEFT - 8} y="12">plans</text>
      {groups.map(({ at, plans: together }) => {
        const { shown, text } = merged(together);
        const look = planLook(shown);
        return (
          <g key={at}>
            <title>{tally(together)}</title>
            <Mark name={look.icon} tone={look.tone} x={at} y={8} />
            {text && (at + 9 + textWidth(text) > right ? <text class="ax e" x={at - 9} y="12">{text}</text> : <text class="ax" x={at + 9} y="12">{text}</text>)}
          </g>
        );
      })}
    </>
  );
}

/** Accelerators are counted: no decimals where there is none. */
const whole = (value: number): string => (Number.isInteger(value) ? fixed(value) : quantity(value));

/** Each edge is labelled with its hours. */
function Labels({ of, x, end, ready }: { of: Hours; x: number; end: number; ready: number }) {
  const idle = of.allocated_hours - of.working_hours;
  const share = (hours: number): string => (of.allocated_hours > 0 ? `${percent(hours / of.allocated_hours)} of allocated` : "");
  const rows = [
    { kind: "idle", name: "idle", hours: idle, under: share(idle), at: 60 },
    { kind: "work", name: "at work", hours: of.working_hours, under: share(of.working_hours), at: 100 },
    { kind: of.saved_hours.value < 0 ? "none" : "saved", name: of.saved_hours.value < 0 ? "more used" : "saved", hours: Math.abs(of.saved_hours.value), under: "against requested sizes", at: 147 },
  ];
  return (
    <>
      <text class="ax" x={x} y={Math.min(ready + 4, 44)}>{whole(of.capacity)} ready</text>
      <text class="ax e" x={end} y={Math.min(ready + 4, 44)}>{of.unit}</text>
      {rows.map(({ kind, name, hours, under, at }) => (
        <g key={kind}>
          {kind !== "none" && <rect class={kind} x={x} y={at - 8} width="8" height="8" />}
          <text class="lb" x={x + 14} y={at}>{name}</text>
          <text class="rd e" x={end} y={at}>{hoursOf(hours)}</text>
          <text class="ax e" x={end} y={at + 14}>{under}</text>
        </g>
      ))}
    </>
  );
}

function AsTable({ of }: { of: Hours }) {
  const hours = Array.from({ length: of.buckets.length / 4 }, (_, at) => of.buckets.slice(4 * at, 4 * at + 4)).reverse();
  const mean = (some: readonly number[]): number => some.reduce((sum, one) => sum + one, 0) / some.length;
  return (
    <details class="astable">
      <summary>View as table</summary>
      <table class="tbl dense">
        <thead>
          <tr><th>From</th><th class="num">At work <span class="u">{of.unit}</span></th><th class="num">Idle</th><th class="num">Saved</th></tr>
        </thead>
        <tbody>
          {hours.map((some) => (
            <tr key={some[0]?.at}>
              <td>{seconds(Date.parse(some[0]?.at ?? "")).slice(0, 5)}</td>
              <td class="num">{quantity(mean(some.map((one) => one.working)))}</td>
              <td class="num">{quantity(mean(some.map((one) => one.idle)))}</td>
              <td class="num">{quantity(mean(some.map((one) => one.saved)))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}

function spoken(of: Hours): string {
  const idle = of.allocated_hours - of.working_hours;
  return `${of.unit} of ${count(of.buckets.length / 4, "hour")}: at work ${hoursOf(of.working_hours)}, idle ${hoursOf(idle)}, ${savedOf(of.saved_hours.value, of.unit)}`;
}
