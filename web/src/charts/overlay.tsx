/** What lies over all charts at once: plan markers, now, direct labels, hatch, crosshair. */
import { useRef } from "preact/hooks";
import type { Prediction, ScalePlan } from "../api/types.ts";
import { planLook } from "../ui/badges.tsx";
import { Mark } from "../ui/icons.tsx";
import { HatchPattern } from "../ui/parts.tsx";
import { compared, fixed, seconds, uncertainty } from "../words/format.ts";
import { type Box, column, firstFree, textWidth } from "../words/labels.ts";
import { nearest } from "../words/ticks.ts";
import { changeOf, merged, tally, type Told } from "../words/verdicts.ts";
import type { Marker, Panel, Promised } from "./measures.ts";
import { EDGE, type Frame } from "./plot.tsx";

/** Heights that the style sheet gives these boxes. */
const LANE = 22;
const CAPTION = 20;
const TIMES = 20;
/** Width of the time at the crosshair. */
const PILL = 54;
/** Markers closer than this merge into one with a count. */
const MERGE = 15;

interface OverlayProps {
  frame: Frame;
  panels: readonly Panel[];
  bands: readonly Promised[];
  markers: readonly Marker[];
  next: ScalePlan | null;
  /** The throughput of now, as the whole page tells it. */
  present: Prediction | null;
  /** The present, or when the job ended; seconds. */
  end: number;
  /** Whether samples should still come in: then an old end is hatched. */
  expected: boolean;
  /** Samples older than this are stale; seconds. */
  staleAfter: number;
  cursor: number | null;
  times: readonly number[];
  onCursor: (at: number | null) => void;
  /** The time axis is moved by so many seconds. */
  onPan: (by: number) => void;
}

interface Placed {
  panel: Panel;
  /** When its samples ended, where they should go on. */
  stale: number | null;
  top: number;
  bottom: number;
  y: (value: number) => number;
}

export function Overlay(props: OverlayProps) {
  const { frame, panels, cursor, end, expected, staleAfter, times, onCursor, onPan } = props;
  const placed = place(panels, expected ? end - staleAfter : Number.NEGATIVE_INFINITY);
  const bottom = (placed.at(-1)?.bottom ?? 0) + EDGE.bottom;
  const right = frame.width - frame.right;
  const x = (at: number): number =>
    EDGE.left + ((at - frame.since) / (frame.until - frame.since)) * (right - EDGE.left);
  const secondsOf = (pixels: number): number => (pixels / (right - EDGE.left)) * (frame.until - frame.since);
  const held = useRef<number | null>(null);
  const point = (event: PointerEvent) => {
    if (held.current !== null) {
      onPan(secondsOf(held.current - event.clientX));
      held.current = event.clientX;
      return;
    }
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const share = (event.clientX - box.left - EDGE.left) / (right - EDGE.left);
    const at = frame.since + share * (frame.until - frame.since);
    onCursor(share < -0.02 || share > 1.02 ? null : (times[nearest(times, at)] ?? null));
  };
  const hold = (event: PointerEvent) => {
    if (event.button !== 0) return;
    (event.currentTarget as Element).setPointerCapture(event.pointerId);
    held.current = event.clientX;
  };
  const wheel = (event: WheelEvent) => {
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
    if (sideways === 0) return;
    event.preventDefault();
    onPan(secondsOf(sideways));
  };
  return (
    <svg
      class="c overlay" width={frame.width} height={bottom + TIMES} aria-hidden="true"
      onPointerMove={point} onPointerLeave={() => onCursor(null)} onWheel={wheel}
      onPointerDown={hold} onLostPointerCapture={() => (held.current = null)}
    >
      <Times {...props} x={x} y={bottom} />
      <Hatch x={x} to={x(end)} placed={placed} silent={cursor !== null} />
      <Markers {...props} x={x} bottom={placed.at(-1)?.bottom ?? 0} right={right} />
      {placed[0] && <Shortfalls bands={props.bands} x={x} placed={placed[0]} right={right} />}
      {props.next && <line class="nowline" x1={x(end)} x2={x(end)} y1={LANE} y2={bottom} />}
      {props.next?.promised && placed[0] && <Next {...props} plan={props.next} x={x} y={placed[0].y} right={right} />}
      {placed.filter(({ panel }) => panel.lines.length === 0).map(({ panel, top, bottom: last }) => (
        <text class="none m" key={panel.title} x={(EDGE.left + right) / 2} y={(top + last) / 2 + 4}>{`no samples, because ${panel.ofSteps ? "no step was measured" : "no collector reports this value"}`}</text>
      ))}
      {placed.map((one) => <Ends key={one.panel.title} {...props} placed={one} x={x} right={right} />)}
      {cursor !== null && <Crosshair at={cursor} x={x} placed={placed} bottom={bottom} gap={frame.gap} />}
    </svg>
  );
}

function place(panels: readonly Panel[], fresh: number): Placed[] {
  let top = LANE;
  return panels.map((panel) => {
    const first = top + CAPTION + EDGE.top;
    top = first + panel.height + EDGE.bottom;
    const high = panel.ticks.at(-1) ?? 1;
    const last = Math.max(...panel.lines.map((line) => line.points.at(-1)?.at ?? 0));
    const stale = panel.lines.length > 0 && last < fresh ? last : null;
    return { panel, stale, top: first, bottom: first + panel.height, y: (value: number) => first + panel.height * (1 - value / high) };
  });
}

type Scale = (value: number) => number;

function Times({ frame, end, cursor, x, y }: OverlayProps & { x: Scale; y: number }) {
  const label = tickTime(end, frame);
  const room = tickTime(end, frame).length > 5 ? 50 : 40;
  return (
    <>
      {frame.times.filter((at) => Math.abs(x(at) - x(end)) > room && (cursor === null || Math.abs(x(at) - x(cursor)) > PILL)).map((at) => (
        <text class="ax m" key={at} x={x(at)} y={y + 12}>{tickTime(at, frame)}</text>
      ))}
      {(cursor === null || Math.abs(x(cursor) - x(end)) > PILL) && <text class="lb m med" x={x(end)} y={y + 12}>{label}</text>}
      {cursor !== null && (
        <g>
          <rect class="pill" x={x(cursor) - PILL / 2} y={y} width={PILL} height="17" rx="3" />
          <text class="pillt" x={x(cursor)} y={y + 12}>{seconds(cursor * 1000)}</text>
        </g>
      )}
    </>
  );
}

/** Seconds are shown only where ticks are closer than a minute. */
function tickTime(at: number, frame: Frame): string {
  const step = (frame.times[1] ?? 0) - (frame.times[0] ?? 0);
  return step < 60 ? seconds(at * 1000) : seconds(at * 1000).slice(0, 5);
}

/** Missing telemetry is hatched: known to be unknown. */
function Hatch({ x, to, placed, silent }: { x: Scale; to: number; placed: readonly Placed[]; silent: boolean }) {
  const old = placed.flatMap((one) => (one.stale === null ? [] : [{ ...one, from: Math.max(EDGE.left, x(one.stale)) }]));
  if (old.length === 0) return null;
  return (
    <g>
      <HatchPattern />
      {old.map(({ panel, top, bottom, from }) => (
        <g key={panel.title}>
          <rect x={from} y={top} width={Math.max(0, to - from)} height={bottom - top} fill="url(#hatch)" />
          <line class="nowline" x1={to} x2={to} y1={top} y2={bottom} />
        </g>
      ))}
      {!silent && <text class="wt e" x={to} y={(old[0]?.top ?? 0) - 12}>no samples</text>}
    </g>
  );
}

function Markers({ markers, frame, x, bottom, right }: OverlayProps & { x: Scale; bottom: number; right: number }) {
  const groups: { at: number; plans: [Told, ...Told[]] }[] = [];
  for (const { at, told } of markers.filter(({ at }) => at >= frame.since && at <= frame.until)) {
    const last = groups.at(-1);
    if (last && x(at) - last.at < MERGE) last.plans.push(told);
    else groups.push({ at: x(at), plans: [told] });
  }
  let taken = 0;
  return (
    <>
      {groups.map(({ at, plans }, index) => {
        const { shown, text: counted } = merged(plans);
        const { plan } = shown;
        const { icon, tone } = planLook(shown);
        const text = counted || markerText(plan);
        const wide = text.length * 6 + 4;
        const room = (groups[index + 1]?.at ?? right + 60) - at - 22;
        const before = at - 12 - taken;
        const side = wide < room ? "after" : wide < before ? "before" : "none";
        taken = side === "after" ? at + 12 + wide : at + 10;
        return (
          <g key={plan.generation}>
            <line class={plan.state === "Proposed" ? "plan now" : "plan"} x1={at} x2={at} y1={LANE - 2} y2={bottom} />
            <title>{tally(plans)}</title>
            <Mark name={icon} tone={tone} x={at} y={10} />
            {side !== "none" && (
              <text class={`${plan.state === "Proposed" ? "bt" : "lb"} ${side === "before" ? "e" : ""}`} x={side === "after" ? at + 12 : at - 12} y="14">
                {text}
              </text>
            )}
          </g>
        );
      })}
    </>
  );
}

function markerText(plan: ScalePlan): string {
  return `g${plan.generation} ${changeOf(plan)}`;
}

/** What was measured of a promise that was missed: beside its band where there is room, else nowhere. */
function Shortfalls({ bands, x, placed, right }: { bands: readonly Promised[]; x: Scale; placed: Placed; right: number }) {
  const within = { x: EDGE.left, y: placed.top, width: right - EDGE.left, height: placed.bottom - placed.top };
  const taken: Box[] = [];
  return (
    <>
      {bands.map(({ from, to, prediction, short }) => {
        if (!short?.outcome.measured) return null;
        const told = `${compared(short.outcome.measured.examples_per_second)} of ${compared(prediction.examples_per_second)}`;
        const places = [`measured ${told} promised`, told].flatMap((text) => {
          const size = { text, width: textWidth(text), height: 14 };
          return [-5, 11, 27].flatMap((down) => {
            const y = placed.y(prediction.low) + down;
            return [{ ...size, x: x(to) + 8, y }, { ...size, x: x(from) - 8 - size.width, y }];
          });
        });
        const found = firstFree(places, taken, within);
        if (!found) return null;
        taken.push(found);
        const before = found.x < x(from);
        return <text class={before ? "xt e" : "xt"} key={short.generation} x={before ? x(from) - 8 : found.x} y={found.y + 10}>{found.text}</text>;
      })}
    </>
  );
}

/** The future is drawn only for a standing recommendation. */
function Next({ plan, end, panels, x, y, right }: OverlayProps & { plan: ScalePlan; x: Scale; y: Scale; right: number }) {
  const promise = plan.promised;
  if (!promise) return null;
  const from = (x(end) + right) / 2;
  const last = panels[0]?.lines[0]?.points.at(-1)?.value ?? 0;
  return (
    <g>
      <rect class="band" x={from} y={y(promise.high)} width={right - from} height={Math.max(2, y(promise.low) - y(promise.high))} />
      <path class="pr" d={`M${x(end)} ${y(last)}L${from} ${y(promise.examples_per_second)}H${right}`} />
    </g>
  );
}

/** Height of a line of a label, and of the words that stand under a number. */
const [ROW, UNDER] = [14, 13];

/** Lines and the promise are labelled at their right end; what is near another gives way. */
function Ends({ placed, next, present, frame, x, right, expected }: OverlayProps & { placed: Placed; x: Scale; right: number }) {
  const { stale, panel } = placed;
  const first = panel.title === "Throughput";
  const promise = first ? next?.promised : null;
  const current = first && stale === null && expected ? present : null;
  // The dot stands where its number says, also where that is not the mean that the line draws.
  const lines = panel.lines.flatMap((line) => {
    const last = line.points.findLast(({ at }) => at <= frame.until);
    return last && last.at >= frame.since ? [{ line, at: last.at, value: current?.examples_per_second ?? last.value }] : [];
  });
  const give = promise && frame.right > 90 ? [uncertainty(promise)] : [];
  const under = [...give, "if approved"];
  const tops = column(
    [
      ...lines.map(({ value }) => ({ y: placed.y(value) - ROW / 2, height: first ? ROW + UNDER : ROW })),
      ...(promise ? [{ y: placed.y(promise.examples_per_second) - ROW / 2, height: ROW + under.length * UNDER }] : []),
    ],
    placed.bottom + EDGE.bottom,
  ).map((top) => top + 11);
  const asked = tops.at(-1) ?? 0;
  return (
    <>
      {lines.map(({ line, at, value }, index) => (
        <g key={line.label}>
          <circle class={stale === null ? (line.second ? "s2d" : "dot") : "ring"} cx={x(at)} cy={placed.y(value)} r={stale === null ? 2 : 3} />
          <text class={line.second ? "s2b" : "rd"} x={right + 8} y={tops[index]}>
            {first ? compared(value) : fixed(value)}
            {!first && <tspan class={line.second ? "s2t" : "lb"}> {line.label}</tspan>}
          </text>
          {first && <text class={stale === null ? "lb" : "wt"} x={right + 8} y={(tops[index] ?? 0) + UNDER}>{current ? line.label : `at ${seconds(at * 1000).slice(0, 5)}`}</text>}
        </g>
      ))}
      {promise && <text class="btb" x={right + 8} y={asked}>{compared(promise.examples_per_second)}</text>}
      {promise && under.map((text, index) => <text class="bt" key={text} x={right + 8} y={asked + (index + 1) * UNDER}>{text}</text>)}
    </>
  );
}

interface CrosshairProps {
  at: number;
  x: Scale;
  placed: readonly Placed[];
  bottom: number;
  gap: number;
}

function Crosshair({ at, x, placed, bottom, gap }: CrosshairProps) {
  return (
    <g>
      <line class="xh" x1={x(at)} x2={x(at)} y1={LANE} y2={bottom} />
      {placed.flatMap(({ panel, y }) =>
        panel.lines.map((line) => {
          const near = line.points[nearest(line.points.map((point) => point.at), at)];
          if (!near || Math.abs(near.at - at) > gap) return null;
          return <circle class="ring" key={panel.title + line.label} cx={x(at)} cy={y(near.value)} r="3" />;
        }),
      )}
    </g>
  );
}

