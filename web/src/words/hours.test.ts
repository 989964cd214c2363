import assert from "node:assert/strict";
import { test } from "node:test";
import * as h from "./hours.ts";

const plain = (text: string): string => text.replaceAll("\u202f", "_").replaceAll("\u00a0", "~");
const exact = (value: number) => ({ value, low: value, high: value });

const OF: h.Hours = {
  unit: "GPU-h", capacity: 8, allocated_hours: 100, working_hours: 85, saved_hours: exact(11.1), sooner_hours: exact(-0.5),
  saved_money: null, proposed_hours: 0, plans: [{}], advice_kept: 0, advice_fell_short: 0, advice_inconclusive: 0, buckets: [],
};

test("an outline holds each value for its bucket", () => {
  assert.equal(h.steps([1, 2], (at) => at * 10, (value) => value), "M0.0 1.0H10.0L10.0 2.0H20.0");
});

test("an area goes there along its upper edge and back along its lower one", () => {
  assert.equal(h.area([2], [0], (at) => at * 10, (value) => value), "M0.0 2.0H10.0L10.0 0.0H0.0Z");
});

test("what was saved has its share, and says whether it was done sooner or later", () => {
  assert.equal(plain(h.note(OF)), "As measured, against requested sizes: 11.1~% of the allocated hours. Summed over jobs, the work ends 30~min later.");
});

test("advice is told apart from what was measured", () => {
  const text = h.note({ ...OF, plans: [], proposed_hours: 96, advice_kept: 2, advice_fell_short: 1 });
  assert.equal(text, "Only measured plans count, and no plan was measured in the last 24 h. Plans that were not applied promised to save 96.0 GPU-h. Later measurements confirm 2 of 3 such promises.");
});

test("what was spent is said in words, money leads with its currency", () => {
  assert.equal(plain(h.savedOf(-1.234, "core-h")), "1.23~core-h more used");
  assert.equal(h.money(-3.14, "€"), "€3.14 more");
});

test("only what is uncertain has an interval", () => {
  assert.equal(h.give(exact(3)), "");
  assert.equal(h.give({ value: 458, low: 424, high: 492 }), "±34");
});

test("hours before the first job are told, and how savings are counted only where there are any", () => {
  const bucket = (working: number) => ({ at: "", working, idle: 0, saved: 0 });
  assert.equal(h.before([bucket(0), bucket(0), bucket(3), bucket(0)]), 2);
  assert.equal(h.before([bucket(0)]), 1);
  assert.match(h.counted(OF), /at the requested sizes/);
  assert.equal(h.counted({ ...OF, plans: [] }), "");
});
