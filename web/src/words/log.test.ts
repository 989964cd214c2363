import assert from "node:assert/strict";
import { test } from "node:test";
import { joined, lastState } from "./log.ts";

const log = (newest: number, oldest: number) => ({
  rows: Array.from({ length: newest - oldest + 1 }, (_, at) => ({ id: newest - at })), next: `before ${oldest}`,
});

test("entries that come while older ones are shown leave no hole", () => {
  assert.deepEqual(joined(log(12, 9), log(10, 1)), log(12, 1));
});

test("entries that are not known would be a hole, so the newest stand alone", () => {
  assert.deepEqual(joined(log(22, 19), log(10, 1)), log(22, 19));
});

test("without older ones only the newest are kept", () => {
  assert.deepEqual(joined(log(12, 9), null), log(12, 9));
});

test("of a line that a progress bar prints over, the last state is shown", () => {
  assert.equal(lastState(" 10 %\r 20 %\r100 %"), "100 %");
  assert.equal(lastState("\0\0 10 %\r 20 %\r"), " 20 %");
  assert.equal(lastState(" 10 %\r\0 20 %\r\0"), " 20 %");
});

test("a line that ends as on Windows, a plain line and an empty one are shown as they are", () => {
  assert.deepEqual(["done\r", "a\u2028b\fc", ""].map(lastState), ["done", "a\u2028b\fc", ""]);
});
