import assert from "node:assert/strict";
import { test } from "node:test";
import { byExpiry, mayWait } from "./proposals.ts";

const plan = (expires_at: string) => ({ plan: { expires_at } });
const [sooner, later] = [plan("2026-11-27T10:00:00Z"), plan("2026-11-27T10:30:00Z")];

test("older plans are of interest while the oldest known one has not expired", () => {
  assert.equal(mayWait([later, sooner], Date.parse("2026-11-27T09:59:59Z")), true);
  assert.equal(mayWait([later, sooner], Date.parse("2026-11-27T10:00:00Z")), false);
  assert.equal(mayWait([], 0), false);
});

test("the first to expire comes first", () => {
  assert.deepEqual([later, sooner].sort(byExpiry), [sooner, later]);
});
