import type { JobView } from "../api/types.ts";

/** Samples older than this are stale; the service holds at the same age by default. */
export const STALE_SECONDS = 60;

/** Whether samples of a job should come in now: while the world changes nobody steps. */
export function expected(job: JobView): boolean {
  return job.state === "Running" || job.state === "Degraded";
}
