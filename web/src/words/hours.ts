/** The strip of accelerator-hours: steps, sums and what is said of savings. Pure. */
import { duration, fixed, SPACE, percent, quantity } from "./format.ts";

export interface Bucket {
  at: string;
  working: number;
  idle: number;
  saved: number;
}

interface Banded {
  value: number;
  low: number;
  high: number;
}

/** What the strip and the answer need of `SavingsOf`. */
export interface Hours {
  unit: string;
  capacity: number;
  allocated_hours: number;
  working_hours: number;
  saved_hours: Banded;
  sooner_hours: Banded;
  saved_money: number | null;
  proposed_hours: number;
  plans: readonly unknown[];
  advice_kept: number;
  advice_fell_short: number;
  advice_inconclusive: number;
  buckets: readonly Bucket[];
}

/** An outline in steps: each value holds for the width of its bucket; pixels. */
export function steps(values: readonly number[], x: (at: number) => number, y: (value: number) => number): string {
  return values.map((value, at) => `${at === 0 ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}H${x(at + 1).toFixed(1)}`).join("");
}

/** The area between two outlines of the same buckets. */
export function area(
  upper: readonly number[], lower: readonly number[], x: (at: number) => number, y: (value: number) => number,
): string {
  const back = lower
    .map((value, at) => `L${x(at + 1).toFixed(1)} ${y(value).toFixed(1)}H${x(at).toFixed(1)}`)
    .reverse()
    .join("");
  return `${steps(upper, x, y)}${back}Z`;
}

/** Hundredths of an hour at most: half a minute of an accelerator is no saving to tell apart. */
export const hoursOf = (hours: number): string => (hours !== 0 && Math.abs(hours) < 1 ? fixed(hours, 2) : quantity(hours));

/** `458 GPU-h saved`, `1.2 core-h more used`: a sign needs a key to be read, a word does not. */
export const savedOf = (hours: number, unit: string): string =>
  `${hoursOf(Math.abs(hours))}${SPACE}${unit} ${hours < 0 ? "more used" : "saved"}`;

/** `±34`; empty where nothing is uncertain. */
export function give({ value, low, high }: Banded): string {
  const half = Math.max(high - value, value - low);
  return half > 0 ? `±${quantity(half, 2)}` : "";
}

/** `€962`, `€3.1 more`: currency leads without space. */
export function money(value: number, currency: string): string {
  return `${currency}${quantity(Math.abs(value))}${value < 0 ? " more" : ""}`;
}

/** How many buckets pass before anything is held: a Brain or a fleet that is young. */
export function before(buckets: readonly Bucket[]): number {
  const first = buckets.findIndex(({ working, idle }) => working + idle > 0);
  return first < 0 ? buckets.length : first;
}

/** How savings are counted, where there are any. */
export const counted = (of: Hours): string =>
  of.plans.length === 0 ? "" : `Saved: the ${of.unit} that the same work would have used at the requested sizes, by the throughput measured at both sizes, minus the ${of.unit} that it used. Restarts and missed promises are subtracted.`;

/** What stands below the answer, in sentences. */
export function note(of: Hours): string {
  const said: string[] = [];
  if (of.plans.length > 0) {
    const share = of.allocated_hours > 0 ? percent(Math.abs(of.saved_hours.value) / of.allocated_hours, 1) : null;
    const sooner = of.sooner_hours.value;
    const time = `${duration(Math.abs(sooner) * 3600)} ${sooner < 0 ? "later" : "sooner"}`;
    said.push(`As measured, against requested sizes${share ? `: ${share} of the allocated hours` : ""}. Summed over jobs, the work ends ${time}.`);
  } else said.push("Only measured plans count, and no plan was measured in the last 24 h.");
  if (Math.abs(of.proposed_hours) >= 0.05) said.push(`Plans that were not applied promised to save ${quantity(of.proposed_hours)} ${of.unit}.`);
  const scored = of.advice_kept + of.advice_fell_short;
  if (scored > 0) said.push(`Later measurements confirm ${of.advice_kept} of ${scored} such promises.`);
  return said.join(" ");
}
