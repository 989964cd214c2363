/** What the chart stack of a job shows: series, promises, markers; shaped without drawing. */
import * as calls from "../api/calls.ts";
import type { JobView, Prediction, ScalePlan, Series, World } from "../api/types.ts";
import { nearest, valueTicks } from "../words/ticks.ts";
import { missed, type Told } from "../words/verdicts.ts";

export interface Point {
  /** Seconds since 1970. */
  at: number;
  value: number;
}

export interface Line {
  label: string;
  points: Point[];
  /** Two lines at most: measured ink, and orange dashed beside it. */
  second: boolean;
}

export interface Panel {
  title: string;
  unit: string;
  height: number;
  lines: Line[];
  /** Measured in steps of the script, not beside it. */
  ofSteps: boolean;
  area: boolean;
  ticks: number[];
}

/** A promise while it stood. */
export interface Promised {
  from: number;
  to: number;
  prediction: Prediction;
  /** The plan that missed it. */
  short: ScalePlan | null;
}

export interface Marker {
  at: number;
  told: Told;
}

const METRICS = [
  "throughput", "gpu_share", "gpu_memory_share", "cpu_share", "memory_share", "data_wait_share",
  "exchange_wait_share",
] as const;
type Metric = (typeof METRICS)[number];
export type Measures = Record<Metric, Series>;

export async function load(job: JobView, since: Date, until: Date, width: number): Promise<Measures> {
  const rate = job.unit_of_throughput === "steps/s" ? "steps_per_second" : "examples_per_second";
  const found = await Promise.all(
    METRICS.map((metric) => calls.series(job.id, metric === "throughput" ? rate : metric, since, until, width)),
  );
  return Object.fromEntries(found.map((series, at) => [METRICS[at], series])) as Measures;
}

/** The panels; the first has room for `promised`. */
export function panels(measures: Measures, job: JobView, promised: number): Panel[] {
  const line = (label: string, metric: Metric, second = false, times = 100): Line => ({
    label,
    second,
    points: measures[metric].points.map(({ at, mean }) => ({ at: Date.parse(at) / 1000, value: mean * times })),
  });
  const throughput = [line("now", "throughput", false, 1)];
  const gpu = [line("busy", "gpu_share"), line("memory", "gpu_memory_share", true)];
  const host = [line("CPU", "cpu_share"), line("memory", "memory_share", true)];
  const exchange = [line("gradients", "exchange_wait_share", true)];
  const waits = some(exchange)
    ? panel("Waits", "% of step", 0, [line("data", "data_wait_share"), ...exchange], [10])
    : panel("Data wait", "% of step", 0, [line("", "data_wait_share")], [10], true);
  // Three charts get the height of four.
  const [tall, low] = some(gpu) ? [144, 72] : [176, 84];
  return [
    panel("Throughput", job.unit_of_throughput, tall, throughput, [promised]),
    ...(some(gpu) ? [panel("GPU", `% of ${job.replicas * job.resources.gpus}`, low, gpu, [100])] : []),
    panel("CPU and memory", "% of limit", low, host, [100]),
    { ...waits, height: low },
  ];
}

function panel(title: string, unit: string, height: number, lines: Line[], least: number[], area = false): Panel {
  const values = lines.flatMap(({ points }) => points.map(({ value }) => value));
  const shown = lines.filter(({ points }) => points.length > 0);
  const ticks = valueTicks(Math.max(0, ...least, ...values));
  const ofSteps = title === "Throughput" || unit === "% of step";
  return { title, unit, height, lines: shown, ofSteps, area, ticks };
}

const some = (lines: readonly Line[]): boolean => lines.some(({ points }) => points.length > 0);

/** One band per world that answers a plan with a promise for its size, of those that are in sight. */
export function promises(worlds: readonly World[], plans: readonly Told[], since: number, until: number): Promised[] {
  const rising = [...worlds].sort((one, other) => one.epoch - other.epoch);
  const all = rising.flatMap((world, index) => {
    const told = plans.find(({ plan }) => plan.generation === world.generation);
    if (!told?.plan.promised) return [];
    const { plan, verdict } = told;
    if (!plan.promised || plan.target.replicas !== world.members.length) return [];
    const next = rising[index + 1];
    const ends = [world.ended_at, next?.formed_at].flatMap((end) => (end ? [Date.parse(end) / 1000] : []));
    return {
      from: Date.parse(world.stepping_at ?? world.formed_at) / 1000,
      to: Math.min(until, ...ends),
      prediction: plan.promised,
      short: missed(verdict) ? plan : null,
    };
  });
  return all.filter(({ to }) => to > since);
}

/** Plans that changed something or may: where they took effect, else where they were made. */
export function markers(worlds: readonly World[], plans: readonly Told[]): Marker[] {
  return plans
    .filter(({ plan: { state } }) => state !== "Superseded" && state !== "Expired")
    .map((told) => {
      const { plan } = told;
      const first = worlds
        .filter(({ generation }) => generation === plan.generation)
        .sort((one, other) => one.epoch - other.epoch)[0];
      return { told, at: Date.parse(first?.formed_at ?? plan.created_at) / 1000 };
    })
    .sort((one, other) => one.at - other.at);
}

/** The value of the bucket at `at`; null in a gap. */
export function valueAt(points: readonly Point[], at: number, gap: number): number | null {
  const found = points[nearest(points.map((point) => point.at), at)];
  return found && Math.abs(found.at - at) <= gap ? found.value : null;
}
