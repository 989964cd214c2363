import assert from "node:assert/strict";
import { test } from "node:test";
import { column, cover, firstFree, placeName } from "./labels.ts";

const box = (x: number, y: number) => ({ x, y, width: 10, height: 10 });

test("texts of a column keep their wish where nothing is in the way", () => {
  assert.deepEqual(column([{ y: 40, height: 14 }, { y: 10, height: 14 }], 100), [40, 10]);
});

test("texts of a column give way downwards, and upwards at the bottom", () => {
  assert.deepEqual(column([{ y: 12, height: 14 }, { y: 10, height: 42 }], 100), [52, 10]);
  assert.deepEqual(column([{ y: 90, height: 14 }, { y: 90, height: 14 }], 100), [72, 86]);
});

test("a word takes the first place that covers nothing", () => {
  const within = { x: 0, y: 0, width: 100, height: 100 };
  assert.equal(cover(box(0, 0), box(10, 0)), false);
  assert.deepEqual(firstFree([box(0, 0), box(95, 0), box(20, 0)], [box(5, 5)], within), box(20, 0));
  assert.equal(firstFree([box(0, 0)], [box(5, 5)], within), undefined);
});

test("a job that ended is nowhere any more", () => {
  assert.deepEqual([placeName(false), placeName(true)], ["you are here", "ended here"]);
});
