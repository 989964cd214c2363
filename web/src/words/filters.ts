/** The filter grammar of `brain/api/filters.py`, for a list that is at hand; pure. */
import type { JobView } from "../api/types.ts";

const STATES = ["Queued", "Starting", "Running", "Changing", "Degraded", "Suspended", "Succeeded", "Failed", "Cancelled"];
/** Keys, each with the values that it can have; null where any value may be. */
const KEYS: Record<string, readonly string[] | null> = {
  state: STATES, project: null, owner: null, pool: null, mode: ["off", "shadow", "approve", "auto"],
};

export type Filter = (job: JobView) => boolean;

/**
 * Every term must hold. `me` is who asks. Of a state or mode the beginning is enough, so that a
 * list follows what is being typed. A string says what is wrong.
 */
export function parseFilter(text: string, me: string): Filter | string {
  const terms: Filter[] = [];
  for (const raw of text.match(/(?:[^\s"']|"[^"]*"|'[^']*'|["'])+/g) ?? []) {
    const term = raw.replace(/["']/g, "").toLowerCase();
    const colon = term.indexOf(":");
    if (colon < 0) {
      terms.push(({ name, id }) => `${name} ${id}`.toLowerCase().includes(term));
      continue;
    }
    const key = term.slice(0, colon);
    const allowed = KEYS[key];
    if (allowed === undefined) return `filter: the key '${key}' does not exist; choose one of ${Object.keys(KEYS).join(", ")}`;
    const wanted = term.slice(colon + 1).split(",").filter(Boolean).map((one) => (key === "owner" && one === "me" ? me.toLowerCase() : one));
    const wrong = wanted.find((one) => allowed && !allowed.some((known) => known.toLowerCase().startsWith(one)));
    if (wrong) return `filter: ${key} '${wrong}' is not a known value; choose one of ${allowed?.join(", ")}`;
    const fits = (value: string): boolean => wanted.some((one) => (allowed ? value.startsWith(one) : value === one));
    if (wanted.length > 0) terms.push((job) => fits(String(job[key as keyof JobView]).toLowerCase()));
  }
  return (job) => terms.every((holds) => holds(job));
}
