import assert from "node:assert/strict";
import { test } from "node:test";
import { Turns } from "./turns.ts";

test("an answer that takes longer than news is shown, and another load follows it", () => {
  const turns = new Turns();
  const first = turns.begin(0);
  assert.equal(turns.afterNews(1000, 1000), null);
  assert.equal(turns.shows(first), true);
  turns.end(1600);
  assert.equal(turns.afterEnd(1600, 5000, 1000), 1600);
});

test("without news the next load is due in its own time", () => {
  const turns = new Turns();
  turns.begin(0);
  turns.end(20);
  assert.equal(turns.afterEnd(20, 5000, 1000), 5000);
});

test("news are followed once a second at most", () => {
  const turns = new Turns();
  turns.begin(0);
  turns.end(20);
  assert.equal(turns.afterNews(300, 1000), 700);
  assert.equal(turns.afterNews(4000, 1000), 60);
});

test("an older answer never replaces a newer one", () => {
  const turns = new Turns();
  const [older, newer] = [turns.begin(0), turns.begin(10)];
  assert.equal(turns.shows(newer), true);
  assert.equal(turns.shows(older), false);
});
