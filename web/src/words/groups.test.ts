import assert from "node:assert/strict";
import { test } from "node:test";
import type { Allocation } from "../api/types.ts";
import { divided, gpusOf, processesOf } from "./groups.ts";

const amounts = (gpus: number) => ({ cpu_millis: 1000, memory_bytes: 0, gpus });
const size = (replicas: number, large: number): Allocation => ({
  replicas,
  processes_per_replica: 4,
  resources: amounts(4),
  roles: large ? [["large", { replicas: large, processes_per_replica: 8, resources: amounts(8), accelerator: null }]] : [],
  nodes: [],
  batch: null,
});

test("sums count each group with its own processes and accelerators", () => {
  assert.deepEqual([processesOf(size(3, 1)), gpusOf(size(3, 1))], [16, 16]);
  assert.deepEqual([processesOf(size(3, 0)), gpusOf(size(3, 0))], [12, 12]);
});

test("a change names the size of each group", () => {
  assert.equal(divided(size(3, 1), size(4, 2)), "worker 2, large 1 → 2");
  assert.equal(divided(size(3, 0), size(4, 0)), "");
});
