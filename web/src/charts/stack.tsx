/** One stack, one time axis, one crosshair through all charts. */
import type { Signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import type { JobView, World } from "../api/types.ts";
import { now } from "../state/now.ts";
import { useResource } from "../state/resource.ts";
import { Empty, Skeleton, Trouble } from "../ui/parts.tsx";
import { useWidth } from "../ui/width.ts";
import { clock, compared, promised, seconds } from "../words/format.ts";
import { moved, nearest, timeTicks } from "../words/ticks.ts";
import type { Told } from "../words/verdicts.ts";
import { load, markers, type Measures, type Panel, panels, promises, valueAt } from "./measures.ts";
import { expected } from "./freshness.ts";
import { Overlay } from "./overlay.tsx";
import { EDGE, type Frame, Plot } from "./plot.tsx";
import { StackTable } from "./table.tsx";

interface StackProps {
  job: JobView;
  worlds: readonly World[];
  plans: readonly Told[];
  /** Length of the time axis, seconds. */
  range: number;
  /** Where the time axis was moved to, seconds; null: it follows the present. */
  end: Signal<number | null>;
}

/** What is loaded: of an axis that was moved also its neighbourhood, so that it can be moved on. */
interface Loaded {
  measures: Measures;
  since: number;
  until: number;
  live: boolean;
}

export function ChartStack(props: StackProps) {
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  return <div class="stack" ref={host}>{width > 0 && <Charts width={width} {...props} />}</div>;
}

function Charts({ job, range, end, width, ...told }: StackProps & { width: number }) {
  const pixels = useRef(0);
  pixels.current = width - EDGE.left - rightOf(width);
  const span = axis(job, range, end.value);
  const live = end.value === null;
  const series = useResource(
    `${job.id} ${range} ${job.finished_at}`,
    async (): Promise<Loaded> => {
      const shown = axis(job, range, end.peek());
      const margin = end.peek() === null ? 0 : range;
      const [since, until] = [Math.max(shown.first, shown.since - margin), Math.min(shown.last, shown.until + margin)];
      const points = (pixels.current * (until - since)) / (shown.until - shown.since);
      const measures = await load(job, new Date(since * 1000), new Date(until * 1000), Math.min(MOST_POINTS, Math.max(2, Math.round(points))));
      return { measures, since, until, live: margin === 0 };
    },
    { quiet: 2, concerns: (news) => news.job === job.id && news.kind !== "row" && end.peek() === null },
  );
  const { value, failure } = series.state.value;
  const covered = value !== null && (live ? value.live : value.since <= span.since && span.until <= value.until);
  useEffect(() => {
    if (value && !covered) void series.refresh();
  }, [value, covered, live]);
  const pan = (by: number) => (end.value = moved(span.until, by, range, span));
  if (value) return <Drawn measures={value.measures} width={width} span={span} job={job} live={live} pan={pan} {...told} />;
  return failure ? <Trouble failure={failure} what="measurements" /> : <Skeleton rows={8} label="Loading measurements" />;
}

/** The service gives no more points at once. */
const MOST_POINTS = 4000;

const rightOf = (width: number): number => (width < 500 ? 66 : 96);

interface Span {
  since: number;
  until: number;
  /** What there is to see: from the job's beginning to its end or the present. */
  first: number;
  last: number;
}

/** The time axis, seconds; no longer than the job is old, and ending with it or where it was moved to. */
export function axis(job: JobView, range: number, end: number | null): Span {
  const last = (job.finished_at ? Date.parse(job.finished_at) : now.value) / 1000;
  const first = Math.min(Date.parse(job.created_at) / 1000, last - 60);
  const until = end === null ? last : Math.max(first + 60, Math.min(last, end));
  return { since: Math.max(until - range, first), until, first, last };
}

interface DrawnProps extends Omit<StackProps, "range" | "end"> {
  measures: Measures;
  width: number;
  span: Span;
  live: boolean;
  /** Moves the time axis by so many seconds. */
  pan: (by: number) => void;
}

function Drawn({ measures, width, span, job, worlds, plans, live, pan }: DrawnProps) {
  const [cursor, setCursor] = useState<number | null>(null);
  const next = (live && plans.find(({ plan: { state } }) => state === "Proposed" || state === "Approved")?.plan) || null;
  const long = span.until - span.since;
  const until = next ? span.until + long * 0.08 : span.until;
  const right = rightOf(width);
  const gap = useMemo(() => gapLimit(measures), [measures]);
  const breaks = useMemo(() => worlds.map((world) => Date.parse(world.formed_at) / 1000), [worlds]);
  const frame: Frame = { width, right, since: span.since, until, times: timeTicks(span.since, span.until, width < 500 ? 4 : 7), gap, breaks };
  const bands = promises(worlds, plans, span.since, span.until);
  const highest = Math.max(0, next?.promised?.high ?? 0, ...bands.map(({ prediction }) => prediction.high));
  const shown = useMemo(() => panels(measures, job, highest), [measures, highest]);
  const times = useMemo(() => shown[0]?.lines[0]?.points.map(({ at }) => at) ?? [], [shown]);
  if (live && shown.every(({ lines }) => lines.length === 0)) return <Nothing job={job} />;
  const move = (by: number) => {
    const from = nearest(times, cursor ?? span.until) + (cursor === null ? 0 : by);
    const at = times[Math.min(times.length - 1, Math.max(0, from))];
    if (at !== undefined && at >= span.since && at <= span.until) setCursor(at);
  };
  const shift = (by: number) => {
    setCursor(null);
    pan(by);
  };
  const press = (event: KeyboardEvent) => {
    const step = event.shiftKey ? 10 : 1;
    const keys: Record<string, () => void> = {
      ArrowLeft: () => move(-step), ArrowRight: () => move(step), Escape: () => setCursor(null),
      PageUp: () => shift(-long / 2), PageDown: () => shift(long / 2), Home: () => shift(span.first - span.until), End: () => shift(span.last - span.until),
    };
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
    if (!act) return;
    act();
    event.preventDefault();
  };
  return (
    <>
      <div
        class="plots"
        tabIndex={0}
        role="group"
        aria-label="Measured charts; the arrow keys move the crosshair, Page Up and Page Down the time axis, End goes back to its end"
        onKeyDown={press}
      >
        <div class="lane" />
        {shown.map((panel) => (
          <figure key={panel.title}>
            <PanelHead panel={panel} cursor={cursor} gap={frame.gap} bands={bands} />
            <Plot panel={panel} frame={frame} promises={panel === shown[0] ? bands : NONE} />
          </figure>
        ))}
        <div class="times" />
        <Overlay
          frame={frame} panels={shown} bands={bands} markers={markers(worlds, plans)} next={next}
          present={live ? job.throughput : null} end={span.until} expected={live && expected(job)} staleAfter={job.stale_after_seconds} cursor={cursor} times={times} onCursor={setCursor} onPan={shift}
        />
      </div>
      <StackTable panels={shown} gap={frame.gap} />
    </>
  );
}

const NONE: never[] = [];

interface HeadProps {
  panel: Panel;
  cursor: number | null;
  gap: number;
  bands: ReturnType<typeof promises>;
}

function PanelHead({ panel, cursor, gap, bands }: HeadProps) {
  const band = cursor === null ? undefined : bands.find(({ from, to }) => from <= cursor && cursor <= to);
  return (
    <figcaption>
      <b>{panel.title}</b> <span>{panel.unit}</span>
      {cursor !== null && (
        <span class="reading">
          {panel.title === "Throughput" && <span>{seconds(cursor * 1000)}</span>}
          {panel.lines.map((line) => (
            <span key={line.label}>
              {panel.title === "Throughput" ? "measured" : line.label} <b>{compared(valueAt(line.points, cursor, gap))}</b>
            </span>
          ))}
          {panel.title === "Throughput" && band && <span class="brain">promised {promised(band.prediction)}</span>}
        </span>
      )}
    </figcaption>
  );
}

/** Three usual distances between neighbours, and never less than ten seconds. */
function gapLimit(measures: Measures): number {
  const at = measures.throughput.points.map((point) => Date.parse(point.at) / 1000);
  const steps = at.slice(1).map((one, index) => one - (at[index] ?? one)).sort((one, other) => one - other);
  return Math.max(10, 3 * (steps[Math.floor(steps.length / 2)] ?? 0));
}

function Nothing({ job }: { job: JobView }) {
  const since = clock(job.created_at, now.value);
  return (
    job.finished_at ? <p class="quiet">Nothing was measured before this job ended; <code>brain logs {job.name}</code> shows what it printed.</p> :
    <Empty title={`Nothing measured yet, because ${job.reason || "no step was seen"}.`}>
      Submitted {since}. Charts appear with the first steps of the script; <code>brain logs {job.name}</code> shows what it prints.
    </Empty>
  );
}
