/** Plans that wait for a person, in a fleet of any size; pure. */

interface Expiring {
  plan: { expires_at: string };
}

/** Whether plans that are older than those of a page, newest first, may still wait: all wait for the same time. */
export const mayWait = (page: readonly Expiring[], now: number): boolean => Date.parse(page.at(-1)?.plan.expires_at ?? "") > now;

/** The first to expire comes first. */
export const byExpiry = (one: Expiring, other: Expiring): number => Date.parse(one.plan.expires_at) - Date.parse(other.plan.expires_at);
