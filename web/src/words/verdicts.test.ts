import assert from "node:assert/strict";
import { test } from "node:test";
import type { PlanState, PlanVerdict, ScalePlan } from "../api/types.ts";
import * as v from "./verdicts.ts";

const told = (verdict: PlanVerdict, state: PlanState = "Verified"): v.Told => ({ plan: { state } as ScalePlan, verdict });

test("a merged mark shows the missed promise that it holds", () => {
  const some: [v.Told, ...v.Told[]] = [told("kept"), told("rolled back", "RolledBack"), told("kept")];
  assert.deepEqual(v.merged(some), { shown: some[1], text: "1 of 3 missed" });
});

test("a merged mark of kept promises counts them, one plan alone has no count", () => {
  assert.equal(v.merged([told("kept"), told("kept")]).text, "2");
  assert.equal(v.merged([told("kept"), told("inconclusive")]).text, "1 of 2");
  assert.equal(v.merged([told("kept")]).text, "");
});

test("each plan counts once, under what came of it", () => {
  const some = [
    told("kept"), told("fell short"), told("rolled back", "RolledBack"), told("kept"), told("not applied", "Expired"),
    told("inconclusive", "RolledBack"), told("not yet", "Applied"),
  ];
  assert.equal(v.tally(some), "2 kept, 1 fell short, 1 rolled back, 1 inconclusive, 1 expired, 1 applied");
});

test("a plan that was taken back before it was measured missed nothing", () => {
  assert.equal(v.missed("inconclusive"), false);
  assert.equal(v.word(told("inconclusive", "RolledBack")), "inconclusive");
});

test("a restart changes no size, and says so", () => {
  const plan = (kind: ScalePlan["kind"], to: number): ScalePlan => ({ kind, current: { replicas: 2 }, target: { replicas: to } }) as ScalePlan;
  assert.equal(v.changeOf(plan("resize", 4)), "2 → 4");
  assert.equal(v.changeOf(plan("restart", 2)), "restart of 2");
  assert.equal(v.tally([told("restored"), told("rolled back", "RolledBack")]), "1 rolled back, 1 restored");
  assert.deepEqual((["restart", "request", "rollback"] as const).map((kind) => v.counts({ plan: plan(kind, 2), verdict: "kept" })), [true, true, false]);
});

test("a missed promise says which size it left", () => {
  const sized = (verdict: PlanVerdict): v.Told => ({ plan: { current: { replicas: 2 }, target: { replicas: 4 } } as ScalePlan, verdict });
  assert.deepEqual(["rolled back", "fell short", "kept"].map((one) => v.standing(sized(one as PlanVerdict))), ["back to 2", "stayed at 4", ""]);
});

test("a plan that changes amounts only says which, and so does its way back", () => {
  const size = (cpu_millis: number, memory_bytes: number) => ({ replicas: 1, roles: [], batch: null, resources: { cpu_millis, memory_bytes, gpus: 0 } });
  const plan = { kind: "resize", current: size(1000, 0), target: size(1500, 2 ** 31) } as unknown as ScalePlan;
  assert.equal(v.changeOf(plan), "CPU 1 → 1.5, memory none → 2\u00a0GiB");
  assert.equal(v.wayBack(plan), "CPU 1.5 → 1, memory 2\u00a0GiB → none");
});
