/** One stack, one time axis, one crosshair through all charts. */
import { useMemo, useRef, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import type { JobView, World } from "../api/types.ts";
import { now } from "../state/now.ts";
import { useResource } from "../state/resource.ts";
import { Empty, Skeleton, Trouble } from "../ui/parts.tsx";
import { useWidth } from "../ui/width.ts";
import { clock, compared, promised, seconds } from "../words/format.ts";
import { nearest, timeTicks } from "../words/ticks.ts";
import type { Told } from "../words/verdicts.ts";
import { load, markers, type Measures, type Panel, panels, promises, valueAt } from "./measures.ts";
import { expected } from "./freshness.ts";
import { Overlay } from "./overlay.tsx";
import { type Frame, Plot } from "./plot.tsx";
import { StackTable } from "./table.tsx";

interface StackProps {
  job: JobView;
  worlds: readonly World[];
  plans: readonly Told[];
  /** Length of the time axis, seconds. */
  range: number;
}

export function ChartStack({ job, worlds, plans, range }: StackProps) {
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const span = axis(job, range);
  const series = useResource(
    `${job.id} ${range} ${job.finished_at}`,
    () => {
      const { since, until } = axis(job, range);
      return load(job, new Date(since * 1000), new Date(until * 1000), 600);
    },
    { quiet: 2, concerns: (news) => news.job === job.id && news.kind !== "row" },
  );
  const { value, failure } = series.state.value;
  return (
    <div class="stack" ref={host}>
      {value && width > 0 ? (
        <Drawn measures={value} width={width} span={span} job={job} worlds={worlds} plans={plans} />
      ) : failure ? (
        <Trouble failure={failure} what="measurements" />
      ) : (
        <Skeleton rows={8} label="Loading measurements" />
      )}
    </div>
  );
}

/** The time axis, seconds; no longer than the job is old, and ending with it. */
export function axis(job: JobView, range: number): { since: number; until: number } {
  const until = (job.finished_at ? Date.parse(job.finished_at) : now.value) / 1000;
  const created = Date.parse(job.created_at) / 1000;
  return { since: Math.max(until - range, Math.min(created, until - 60)), until };
}

interface DrawnProps extends Omit<StackProps, "range"> {
  measures: Measures;
  width: number;
  span: { since: number; until: number };
}

function Drawn({ measures, width, span, job, worlds, plans }: DrawnProps) {
  const [cursor, setCursor] = useState<number | null>(null);
  const next = plans.find(({ plan: { state } }) => state === "Proposed" || state === "Approved")?.plan ?? null;
  const until = next ? span.until + (span.until - span.since) * 0.08 : span.until;
  const right = width < 500 ? 66 : 96;
  const frame = useMemo((): Frame => {
    const times = timeTicks(span.since, span.until, width < 500 ? 4 : 7);
    const breaks = worlds.map((world) => Date.parse(world.formed_at) / 1000);
    return { width, right, since: span.since, until, times, gap: gapLimit(measures), breaks };
  }, [width, right, span.since, until, measures, worlds]);
  const bands = useMemo(() => promises(worlds, plans, span.since, span.until), [worlds, plans, span.since, span.until]);
  const shown = useMemo(() => panels(measures, job, bands, next?.promised ?? null), [measures, bands, next]);
  const times = shown[0]?.lines[0]?.points.map(({ at }) => at) ?? [];
  if (shown.every(({ lines }) => lines.length === 0)) return <Nothing job={job} />;
  const move = (by: number) => {
    const from = cursor === null ? times.length - 1 : nearest(times, cursor) + by;
    setCursor(times[Math.min(times.length - 1, Math.max(0, from))] ?? null);
  };
  return (
    <>
      <div
        class="plots"
        tabIndex={0}
        role="group"
        aria-label="Measured charts; the arrow keys move the crosshair"
        onKeyDown={(event) => {
          const step = event.shiftKey ? 10 : 1;
          if (event.key === "ArrowLeft") move(-step);
          else if (event.key === "ArrowRight") move(step);
          else if (event.key === "Escape") setCursor(null);
          else return;
          event.preventDefault();
        }}
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
          present={job.throughput} end={span.until} expected={expected(job)} cursor={cursor} times={times} onCursor={setCursor}
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
