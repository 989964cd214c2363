import assert from "node:assert/strict";
import { test } from "node:test";
import { joined } from "./log.ts";

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
