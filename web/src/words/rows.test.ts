import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobView } from "../api/types.ts";
import { type Change, inSight, merged, ToldMeanwhile } from "./rows.ts";

const row = (id: string, more: Partial<JobView> = {}): JobView => ({ id, name: id, state: "Running", replicas: 1, ...more }) as JobView;

test("changes of rows are merged, and rows without news stay the same", () => {
  const rows = [row("a"), row("b")];
  const found = merged(rows, [{ id: "b", replicas: 2 }, { id: "b", state: "Changing" }]);
  assert.equal(found[0], rows[0]);
  assert.deepEqual(found[1], row("b", { replicas: 2, state: "Changing" }));
});

test("a job that comes whole is a row of its own, and first; a part of an unknown one is none", () => {
  assert.deepEqual(merged([row("a")], [row("c"), { id: "d", replicas: 3 }]).map(({ id }) => id), ["c", "a"]);
});

test("what is told while a list loads is in that list, and nothing is kept for longer", async () => {
  const told = new ToldMeanwhile();
  let read = 0;
  const change = function* (): Iterable<Change> {
    read += 1;
    yield { id: "a", replicas: read };
  };
  told.add(change());
  const list = async (): Promise<JobView[]> => {
    told.add(change());
    return [row("a", { replicas: 9 })];
  };
  assert.equal((await told.into(list))[0]?.replicas, 1);
  await assert.rejects(told.into(() => Promise.reject(new Error("away"))));
  told.add(change());
  assert.equal(read, 1);
});

test("only rows in sight and some around them are there", () => {
  assert.deepEqual(inSight(2000, 32, 100, 900), { first: 0, last: 60, slots: 60 });
  const far = inSight(2000, 32, -32_000, 900);
  assert.ok(far.first <= 1000 && far.first > 970 && far.last >= 1029 && far.last - far.first <= far.slots);
  assert.equal(inSight(0, 32, 100, 900).last, 0);
  assert.equal(inSight(2000, 32, -64_000, 900).last, 2000);
  assert.deepEqual(inSight(5, 32, -9000, 900), { first: 0, last: 5, slots: 60 });
});
