/** Plans with what came of them: one word each, wherever they are shown or counted; pure. */
import type { PlanVerdict, ScalePlan } from "../api/types.ts";
import { withinSize } from "./groups.ts";

export interface Told {
  plan: ScalePlan;
  verdict: PlanVerdict;
}

const MISSED: ReadonlySet<PlanVerdict> = new Set<PlanVerdict>(["fell short", "rolled back"]);

/** Whether a promise was not kept, whatever size stands now. */
export const missed = (verdict: PlanVerdict): boolean => MISSED.has(verdict);

/** The size that a missed promise left: `back to 2`, or `stayed at 4`; nothing of others. */
export function standing({ plan, verdict }: Told): string {
  if (!missed(verdict)) return "";
  return verdict === "rolled back" ? `back to ${plan.current.replicas}` : `stayed at ${plan.target.replicas}`;
}

/** A plan's change in a few words: `2 → 4`, a restart at the same size, or `CPU 1 → 1.5` if the size stays. */
export function changeOf({ kind, current, target }: ScalePlan): string {
  if (kind === "restart") return `restart of ${target.replicas}`;
  return (current.replicas === target.replicas && withinSize(current, target)) || `${current.replicas} → ${target.replicas}`;
}

/** Whether a plan changes the number of replicas. */
export const resizes = ({ current, target }: ScalePlan): boolean => current.replicas !== target.replicas;

/** The change that a rollback of the plan makes. */
export const wayBack = (plan: ScalePlan): string => changeOf({ ...plan, kind: "rollback", current: plan.target, target: plan.current });

/** Whether a plan stands for itself: the way back is a part of the plan that it undoes, and is told there. */
export const counts = ({ plan }: Told): boolean => plan.kind !== "rollback" && plan.kind !== "restore";

/** The one word for a plan: what came of it, else where it stands. */
export function word({ plan, verdict }: Told): string {
  if (verdict !== "not yet" && verdict !== "not applied") return verdict;
  return plan.state.toLowerCase();
}

/** `2 kept, 1 rolled back`: each plan once. */
export function tally(told: readonly Told[]): string {
  const found = new Map<string, number>();
  for (const one of told) found.set(word(one), (found.get(word(one)) ?? 0) + 1);
  const order = ["kept", "fell short", "rolled back", "inconclusive", "restored"];
  const rank = (one: string): number => (order.includes(one) ? order.indexOf(one) : order.length);
  return [...found].sort(([one], [other]) => rank(one) - rank(other)).map(([said, count]) => `${count} ${said}`).join(", ");
}

/** What one mark of several plans shows: the newest missed promise, else the newest plan, and how many of all are such. */
export function merged(together: readonly [Told, ...Told[]]): { shown: Told; text: string } {
  const short = together.filter(({ verdict }) => missed(verdict));
  const shown = short.at(-1) ?? together.at(-1) ?? together[0];
  const alike = short.length || together.filter((one) => word(one) === word(shown)).length;
  if (together.length === 1) return { shown, text: "" };
  const text = alike === together.length ? String(alike) : `${alike} of ${together.length}`;
  return { shown, text: short.length > 0 ? `${text} missed` : text };
}
