/** What a round of a pool came to, in words. */
import type { JobShare } from "../api/types.ts";
import { MINUS, SPACE, quantity, UNKNOWN } from "./format.ts";

/** Changes first, then who waits, then who is held, then who keeps what it has. */
const ORDER = ["refused", "stops", "shrinks", "grows", "moves", "starts", "waits", "held", "keeps"];

export function byChange(one: JobShare, other: JobShare): number {
  return ORDER.indexOf(one.outcome) - ORDER.indexOf(other.outcome) || one.name.localeCompare(other.name);
}

/** The gap of a division: small ones are what there is to see. */
export function gap(share: number | null | undefined): string {
  if (share === null || share === undefined) return UNKNOWN;
  return `${(100 * share).toFixed(share < 0.001 ? 3 : 1)}${SPACE}%`;
}

/** Accelerators or cores: whole ones as such. */
export const amount = (value: number | undefined): string =>
  value !== undefined && Number.isInteger(value) ? String(value) : quantity(value);

/** The size that a job might have had, and what it would have cost. */
export function rival({ next_best: other }: JobShare): string {
  if (!other) return UNKNOWN;
  const utility = Math.abs(other.gain) < 1e-6 ? `0${SPACE}utility` : `${other.gain < 0 ? MINUS : "+"}${Math.abs(other.gain).toPrecision(2)} utility`;
  return `${other.replicas} on ${other.accelerator}, ${utility}`;
}
