/** Where words stand in a chart, so that none covers another; pure, pixels. */

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Width of a text of 11 to 12 px, never too small. */
export const textWidth = (text: string): number => 6.6 * text.length;

export const cover = (one: Box, other: Box): boolean =>
  one.x < other.x + other.width && other.x < one.x + one.width && one.y < other.y + other.height && other.y < one.y + one.height;

/** The first place that covers nothing and lies within the chart. */
export function firstFree<Place extends Box>(places: readonly Place[], taken: readonly Box[], within: Box): Place | undefined {
  const inside = (one: Box): boolean =>
    one.x >= within.x && one.y >= within.y && one.x + one.width <= within.x + within.width && one.y + one.height <= within.y + within.height;
  return places.find((one) => inside(one) && !taken.some((other) => cover(one, other)));
}

/** Upper edges of a column of texts: each as near to its wish as the others and `bottom` let it. */
export function column(wished: readonly { y: number; height: number }[], bottom: number): number[] {
  const order = wished.map((_, at) => at).sort((one, other) => (wished[one]?.y ?? 0) - (wished[other]?.y ?? 0));
  const found = wished.map(({ y }) => y);
  const height = (at: number): number => wished[at]?.height ?? 0;
  let edge = Number.NEGATIVE_INFINITY;
  for (const at of order) {
    found[at] = Math.max(found[at] ?? 0, edge);
    edge = found[at] + height(at);
  }
  edge = bottom;
  for (const at of order.reverse()) {
    found[at] = Math.min(found[at] ?? 0, edge - height(at));
    edge = found[at];
  }
  return found;
}

/** The name of a job's present size, or of its last size. */
export const placeName = (ended: boolean): string => (ended ? "ended here" : "you are here");
