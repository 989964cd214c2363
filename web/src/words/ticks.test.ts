import assert from "node:assert/strict";
import { test } from "node:test";
import { moved, nearest, tickDecimals, timeTicks, valueTicks, withGaps } from "./ticks.ts";

test("value ticks are round, start at 0 and reach the highest value", () => {
  assert.deepEqual(valueTicks(2900), [0, 1000, 2000, 3000]);
  assert.deepEqual(valueTicks(40), [0, 20, 40]);
  assert.deepEqual(valueTicks(0.031).at(0), 0);
  assert.ok((valueTicks(0.031).at(-1) ?? 0) >= 0.031);
});

test("no two ticks of an axis read alike, and each reads as what it is", () => {
  for (const high of [0.003, 0.07, 0.9, 1, 7, 9.9, 24, 70, 730, 7e6]) {
    const ticks = valueTicks(high);
    const said = ticks.map((tick) => tick.toFixed(tickDecimals(ticks[1] ?? 1)));
    assert.equal(new Set(said).size, ticks.length);
    said.forEach((text, at) => assert.ok(Math.abs(Number(text) - (ticks[at] ?? 0)) < 1e-9));
  }
});

test("time ticks stand on whole units and are few", () => {
  const since = Date.parse("2026-11-21T08:31:10") / 1000;
  const ticks = timeTicks(since, since + 6 * 3600, 7);
  assert.ok(ticks.length <= 7);
  for (const tick of ticks) assert.equal(new Date(tick * 1000).getMinutes(), 0);
});

test("a gap becomes a null and is never bridged", () => {
  const points = [0, 1, 2, 10, 11].map((at) => ({ at, value: at }));
  assert.deepEqual(withGaps(points, 3).y, [0, 1, 2, null, 10, 11]);
});

test("a line breaks where a world ended, however short the gap", () => {
  const points = [0, 1, 2, 3].map((at) => ({ at, value: at }));
  assert.deepEqual(withGaps(points, 3, [1.5]).y, [0, 1, null, 2, 3]);
});

test("nearest finds the closer neighbour", () => {
  assert.equal(nearest([0, 10, 20], 14), 1);
  assert.equal(nearest([0, 10, 20], 16), 2);
  assert.equal(nearest([0, 10, 20], -5), 0);
  assert.equal(nearest([], 1), -1);
});

test("an axis is moved within what there is, and follows its end again from there on", () => {
  const kept = { first: 0, last: 100 };
  assert.equal(moved(100, -30, 20, kept), 70);
  assert.equal(moved(70, -90, 20, kept), 20);
  assert.equal(moved(70, 30, 20, kept), null);
  assert.equal(moved(100, -30, 200, kept), null);
});
