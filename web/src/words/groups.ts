/** Sizes whose replicas differ: sums over all replicas, and the size of each group. */
import type { Allocation } from "../api/types.ts";
import { bytes, cores } from "./format.ts";

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

/** What changes between two allocations of one size: amounts, the size of a role, or the batch; empty if nothing does. */
export function withinSize(current: Allocation, target: Allocation): string {
  const before = new Map(current.roles);
  const roles = target.roles.map(([name, own]) => {
    const was = before.get(name);
    const from = was?.replicas ?? 0;
    const size = from === own.replicas ? "" : `${from} → ${own.replicas}`;
    const said = [size, amounts(was?.resources ?? current.resources, own.resources ?? target.resources)].filter(Boolean).join(" ");
    return said && `${name} ${said}`;
  });
  const said = [amounts(current.resources, target.resources), ...roles].filter(Boolean).join(", ");
  if (said || !target.batch || target.batch.global_size === current.batch?.global_size) return said;
  return `batch ${current.batch?.global_size ?? "none"} → ${target.batch.global_size}`;
}

function amounts(before: Allocation["resources"], after: Allocation["resources"]): string {
  const said = [
    ["CPU", before.cpu_millis, after.cpu_millis, cores],
    ["memory", before.memory_bytes, after.memory_bytes, bytes],
    ["GPUs", before.gpus, after.gpus, String],
  ] as const;
  return said
    .filter(([, from, to]) => from !== to)
    .map(([name, from, to, write]) => `${name} ${from ? write(from) : "none"} → ${to ? write(to) : "none"}`)
    .join(", ");
}
