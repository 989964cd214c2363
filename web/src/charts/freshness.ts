import type { JobView } from "../api/types.ts";

/** Samples older than this are stale; the service holds at the same age by default. */
export const STALE_SECONDS = 60;

/** Whether samples of a job should come in now. */
export function expected(job: JobView): boolean {
  return !job.finished_at && job.state !== "Suspended" && job.state !== "Queued";
}
