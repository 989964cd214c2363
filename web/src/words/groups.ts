/** Sizes whose replicas differ: sums over all replicas, and the size of each group. */
import type { Allocation } from "../api/types.ts";

type Own = Allocation["roles"][number][1];
type Parts = readonly (readonly [name: string, replicas: number, own?: Own])[];

function parts({ replicas, roles }: Allocation): Parts {
  const beside = roles.reduce((all, [, own]) => all + own.replicas, 0);
  return [["worker", replicas - beside], ...roles.map(([name, own]) => [name, own.replicas, own] as const)];
}

const total = (size: Allocation, each: (own?: Own) => number): number =>
  parts(size).reduce((all, [, replicas, own]) => all + replicas * each(own), 0);

/** Processes of all replicas. */
export const processesOf = (size: Allocation): number => total(size, (own) => own?.processes_per_replica ?? size.processes_per_replica);

/** Accelerators of all replicas. */
export const gpusOf = (size: Allocation): number => total(size, (own) => (own?.resources ?? size.resources).gpus);

/** `worker 2, large 1 → 2`; empty if all replicas are alike. */
export function divided(current: Allocation, target: Allocation): string {
  if (!target.roles.some(([, own]) => own.processes_per_replica !== null)) return "";
  const before = new Map(parts(current).map(([name, replicas]) => [name, replicas]));
  return parts(target)
    .map(([name, replicas]) => [name, before.get(name) ?? 0, replicas] as const)
    .map(([name, from, to]) => `${name} ${from === to ? to : `${from} → ${to}`}`)
    .join(", ");
}
