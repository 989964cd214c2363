/** Axes: round values, whole minutes and hours. Pure. */

/** Three to five round values from 0 to at least `high`. */
export function valueTicks(high: number): number[] {
  if (!(high > 0)) return [0, 1];
  const rough = high / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 2.5, 5, 10].find((times) => times * power >= rough * 0.999) ?? 10) * power;
  const steps = Math.ceil(high / step - 1e-9);
  return Array.from({ length: steps + 1 }, (_, at) => Number((at * step).toPrecision(12)));
}

/** Decimals that tell every multiple of `step` apart, and none more. */
export function tickDecimals(step: number): number {
  for (let decimals = 0; decimals < 12; decimals += 1) {
    const whole = step * 10 ** decimals;
    if (Math.abs(whole - Math.round(whole)) < 1e-6 * Math.max(1, whole)) return decimals;
  }
  return 12;
}

const STEPS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Instants (seconds) at whole units of local time, at most `most` of them. */
export function timeTicks(since: number, until: number, most: number): number[] {
  const step = STEPS.find((one) => (until - since) / one <= most) ?? 86400;
  const zone = new Date(since * 1000).getTimezoneOffset() * 60;
  const first = Math.ceil((since - zone) / step) * step + zone;
  const ticks: number[] = [];
  for (let at = first; at <= until; at += step) ticks.push(at);
  return ticks;
}

/**
 * Splits sorted instants where two are further apart than `limit`, or one of `breaks` lies
 * between them; a gap is never bridged. What is nearer than `margin` to a break is left out: a
 * gap of less than a pixel would be drawn as a line.
 */
export function withGaps(
  points: readonly { at: number; value: number }[], limit: number, breaks: readonly number[] = [], margin = 0,
): { x: number[]; y: (number | null)[] } {
  const x: number[] = [];
  const y: (number | null)[] = [];
  let last = Number.NaN;
  for (const { at, value } of points) {
    const before = last;
    if (breaks.some((one) => Math.abs(at - one) < margin)) continue;
    if (at - before > limit || breaks.some((one) => before < one && one <= at)) {
      x.push((at + last) / 2);
      y.push(null);
    }
    x.push(at);
    y.push(value);
    last = at;
  }
  return { x, y };
}

/** Index of the sorted `x` nearest to `value`; −1 for an empty list. */
export function nearest(x: readonly number[], value: number): number {
  if (x.length === 0) return -1;
  let [low, high] = [0, x.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((x[middle] ?? 0) < value) low = middle + 1;
    else high = middle;
  }
  return low > 0 && value - (x[low - 1] ?? 0) < (x[low] ?? 0) - value ? low - 1 : low;
}

/** Where an axis of `range` ends that is moved by so much, within what there is; null where it follows its end. */
export function moved(until: number, by: number, range: number, kept: { first: number; last: number }): number | null {
  const next = Math.max(until + by, kept.first + range);
  return next >= kept.last ? null : next;
}
