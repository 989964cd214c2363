import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobView } from "../api/types.ts";
import { parseFilter } from "./filters.ts";

const job = { id: "0197", name: "digits-large", state: "Running", owner: "Ada L.", project: "vision", pool: "local", mode: "auto" } as JobView;

const holds = (text: string): boolean => {
  const found = parseFilter(text, "Ada L.");
  assert.equal(typeof found, "function", String(found));
  return typeof found === "function" && found(job);
};

test("all terms of a filter must hold, and one of the values of each", () => {
  assert.equal(holds(""), true);
  assert.equal(holds("state:Queued,running LARGE owner:me"), true);
  assert.equal(holds('owner:"ada l." project:vision'), true);
  assert.equal(holds("owner:ada"), false);
  assert.equal(holds("state:Queued digits"), false);
});

test("a filter that is being typed holds already", () => {
  assert.equal(holds("state:"), true);
  assert.equal(holds("state:Run"), true);
  assert.equal(holds('owner:"Ada L.'), false);
});

test("an unknown key or state is told with the known ones", () => {
  assert.match(String(parseFilter("colour:blue", "")), /the key 'colour' does not exist; choose one of state, project, owner, pool, mode/);
  assert.match(String(parseFilter("state:blue", "")), /state 'blue' is not a known value; choose one of Queued/);
});
