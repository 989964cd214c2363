/** A list of jobs that is kept by what the stream tells of its rows; pure. */
import type { JobView } from "../api/types.ts";

/** Changed fields of a row; a job that was not told before comes with all of them. */
export type Change = Partial<JobView> & { id: string };

/** The rows with the changes in them; a row without news stays the same object. */
export function merged(rows: readonly JobView[], changes: Iterable<Change>): JobView[] {
  const news = new Map<string, Change>();
  for (const change of changes) news.set(change.id, { ...news.get(change.id), ...change });
  const kept = rows.map((row) => {
    const change = news.get(row.id);
    news.delete(row.id);
    return change ? { ...row, ...change } : row;
  });
  const whole = [...news.values()].filter((change): change is JobView => change.name !== undefined && change.state !== undefined);
  return [...whole, ...kept];
}

/** Puts what is told while a list is on its way into that list; holds nothing otherwise. */
export class ToldMeanwhile {
  private readonly loading = new Set<Change[]>();

  add(changes: Iterable<Change>): void {
    for (const told of this.loading) told.push(...changes);
  }

  async into(load: () => Promise<JobView[]>): Promise<JobView[]> {
    const told: Change[] = [];
    this.loading.add(told);
    try {
      return merged(await load(), told);
    } finally {
      this.loading.delete(told);
    }
  }
}

export interface Sight {
  first: number;
  last: number;
  /** How many rows the page may hold at once. */
  slots: number;
}

/** Which rows of equal height are to be there: those in sight and some around them. */
export function inSight(count: number, height: number, top: number, bottom: number): Sight {
  const block = (at: number): number => Math.floor(at / BLOCK) * BLOCK;
  const slots = block(bottom / height) + 3 * BLOCK;
  const first = Math.min(Math.max(0, block(-top / height) - BLOCK), Math.max(0, block(count - 1)));
  return { first, last: Math.min(count, first + slots), slots };
}

/** Rows that come and go together. */
export const BLOCK = 12;

/** The first rows of the blocks between two rows. */
export const blocks = (first: number, last: number): number[] => Array.from({ length: Math.ceil((last - first) / BLOCK) }, (_, at) => first + at * BLOCK);
