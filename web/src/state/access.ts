/** Which controls a person may use; the mirror of the table in `brain/api/auth.py`. */
import type { JobView } from "../api/types.ts";
import { health, missing } from "./session.ts";

/** Approving, rejecting, rolling back and freezing. */
export const mayDecide = (): string | null => missing("operator");

/** Acting on a job: an operator, or the submitter who owns it. */
export function maySteer(job: JobView): string | null {
  const lacking = missing("submitter");
  if (lacking || missing("operator") === null) return lacking;
  return job.owner === health.value?.who ? null : `belongs to ${job.owner}; needs role operator`;
}
