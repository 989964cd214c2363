/** A log that grows at its beginning and is read page by page, and lines of output; pure. */

/** The service sends NUL bytes while no line comes, also where a progress bar has returned to its beginning. */
const HEARTBEATS = /(^|\r)\0+/g;

/** The last state of a line of output: a progress bar returns to the beginning of its line and prints over it. */
export function lastState(line: string): string {
  return line.replace(HEARTBEATS, "$1").replace(/\r+$/, "").replace(/^.*\r/s, "");
}

export interface Log<Entry> {
  /** Newest first, without holes. */
  rows: readonly Entry[];
  /** Token of the page of older entries; "" behind the oldest. */
  next: string;
}

/**
 * The newest entries before those that were read earlier. If entries are missing between both, the newest stand alone:
 * a log with a hole would tell that nothing happened there.
 */
export function joined<Entry extends { id: number }>(newest: Log<Entry>, read: Log<Entry> | null): Log<Entry> {
  const known = new Set(newest.rows.map(({ id }) => id));
  if (!read?.rows.some(({ id }) => known.has(id))) return newest;
  return { rows: [...newest.rows, ...read.rows.filter(({ id }) => !known.has(id))], next: read.next };
}
