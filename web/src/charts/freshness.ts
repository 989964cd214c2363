import type { JobView } from "../api/types.ts";

/** Whether samples of a job should come in now: while the world changes nobody steps. */
export function expected(job: JobView): boolean {
  return job.state === "Running" || job.state === "Degraded";
}
