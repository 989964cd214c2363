import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobShare } from "../api/types.ts";
import { byChange, gap, rival } from "./shares.ts";

const share = (outcome: string, name: string): JobShare => ({
  job: name, name, project: "default", outcome, accelerator: "cpu", before: 1, replicas: 1, nodes: [],
  next_best: null, lost_to: null, reason: "", plan: null,
});

test("changes come first, then names", () => {
  const rows = [share("keeps", "b"), share("keeps", "a"), share("grows", "z")].sort(byChange);
  assert.deepEqual(rows.map(({ name }) => name), ["z", "a", "b"]);
});

test("a small gap is told to a thousandth of a percent", () => {
  assert.equal(gap(0.00002), "0.002\u00a0%");
  assert.equal(gap(0.05), "5.0\u00a0%");
  assert.equal(gap(null), "—");
});

test("what a job might have had comes with what it lacks in utility", () => {
  const lost = { ...share("keeps", "a"), next_best: { accelerator: "T4", replicas: 4, gain: -0.041, cost: 0.2 } };
  assert.equal(rival(lost), "4 on T4, \u22120.041 utility");
  assert.equal(rival(share("keeps", "a")), "—");
});
