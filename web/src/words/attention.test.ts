import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobView, NodeView, Recommendation } from "../api/types.ts";
import { about, concerns, holding } from "./attention.ts";

const decided = (code: string, target: number): Recommendation =>
  ({ current: { replicas: 2 }, target: { replicas: target }, explanation: { code } }) as Recommendation;

test("a hold that only waits for a plan stands in no row beside that plan", () => {
  assert.equal(holding(decided("at-share", 2)), true);
  assert.equal(holding(decided("plan-active", 2)), false);
  assert.equal(holding(decided("scales-well", 3)), false);
  assert.equal(holding(null), false);
});

const NOW = Date.parse("2026-01-01T12:00:00Z");

const job = (name: string, state: JobView["state"], more: Partial<JobView> = {}): JobView => ({
  id: `id of ${name}`, name, project: "default", state, reason: "", conditions: [], advise_only: null, decision: null,
  losses: { dropped: 0, gaps: 0 }, created_at: "2026-01-01T11:00:00Z", updated_at: "2026-01-01T11:50:00Z",
  finished_at: state === "Failed" ? "2026-01-01T11:50:00Z" : null, ...more,
}) as unknown as JobView;

test("equal failures are one concern, which counts each of their jobs", () => {
  const failed = Array.from({ length: 45 }, (_, at) => job(`run-${at}`, "Failed", { reason: `rank ${at} exited with code 137 at step ${7 * at}` }));
  const other = job("odd", "Failed", { reason: "rank 1 exited with code 1" });
  const found = concerns([...failed, other], [], [], null, NOW);
  assert.deepEqual(found.map(({ title }) => title), ["45 jobs failed for the same reason", "odd failed"]);
  assert.match(found[0]?.detail ?? "", /run-0, run-1, run-2, run-3 and 41 more: rank 0 exited/);
  assert.deepEqual(about(found), { jobs: 46, nodes: 0 });
});

test("a job with two concerns counts once, one that only waits to start does not", () => {
  const both = job("both", "Degraded", { conditions: [{ kind: "Straggler", reason: "rank 1" }] });
  const silent = { name: "n1", ready: false, left: [], jobs: [], schedulable: true } as unknown as NodeView;
  const found = concerns([both, job("queued", "Queued")], [], [silent], null, NOW);
  assert.equal(found.length, 4);
  assert.deepEqual(about(found), { jobs: 1, nodes: 1 });
});
