import assert from "node:assert/strict";
import { test } from "node:test";
import type { Recommendation } from "../api/types.ts";
import { holding } from "./attention.ts";

const decided = (code: string, target: number): Recommendation =>
  ({ current: { replicas: 2 }, target: { replicas: target }, explanation: { code } }) as Recommendation;

test("a hold that only waits for a plan stands in no row beside that plan", () => {
  assert.equal(holding(decided("at-share", 2)), true);
  assert.equal(holding(decided("plan-active", 2)), false);
  assert.equal(holding(decided("scales-well", 3)), false);
  assert.equal(holding(null), false);
});
