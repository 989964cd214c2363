import assert from "node:assert/strict";
import { test } from "node:test";
import * as f from "./format.ts";

const plain = (text: string): string => text.replaceAll(f.NARROW, "_").replaceAll(f.SPACE, "~");
const NOW = Date.parse("2026-11-21T14:32:08");
const at = (text: string): string => new Date(text).toISOString();

test("thousands are grouped by narrow spaces that do not break", () => {
  assert.equal(plain(f.fixed(1842)), "1_842");
  assert.equal(plain(f.fixed(1234567.25, 1)), "1_234_567.3");
  assert.equal(plain(f.fixed(999)), "999");
});

test("minus is a true minus, and nothing is minus zero", () => {
  assert.equal(f.fixed(-2.14, 1), "−2.1");
  assert.equal(f.fixed(-0.04, 1), "0.0");
  assert.equal(f.signed(-0.004), "0");
  assert.equal(f.signed(34), "+34");
});

test("three significant figures, four where values are compared", () => {
  assert.equal(plain(f.quantity(1842)), "1_840");
  assert.equal(plain(f.compared(1842)), "1_842");
  assert.equal(f.compared(968.2), "968");
  assert.equal(f.quantity(96.24), "96.2");
  assert.equal(f.quantity(0.03149), "0.0315");
  assert.equal(f.quantity(99.97), "100");
});

test("what is unknown is a dash", () => {
  for (const text of [f.fixed(null), f.percent(undefined), f.quantity(NaN), f.promised(null)])
    assert.equal(text, "—");
  assert.equal(f.clock(null, NOW), "—");
});

test("decimals are equal within a column", () => {
  assert.deepEqual(f.column([96.24, 8.1, null]), ["96.2", "8.1", "—"]);
});

test("percent has a space before its sign", () => {
  assert.equal(plain(f.percent(0.614, 1)), "61.4~%");
  assert.equal(plain(f.change(-0.203, 1)), "−20.3~%");
});

test("uncertainty is a half width, or two ends where they differ", () => {
  const even = { examples_per_second: 2555, low: 2445, high: 2665 };
  assert.equal(plain(f.promised(even)), "2_555 ±110");
  assert.equal(f.uncertainty({ examples_per_second: 100, low: 95, high: 120 }), "−5.0 … +20");
});

test("measured against promised reads of", () => {
  const one = (value: number) => ({ examples_per_second: value, low: value, high: value });
  assert.equal(plain(f.measuredOf(one(2310), one(2900))), "2_310 of 2_900");
});

test("durations change unit as they grow", () => {
  assert.equal(plain(f.duration(0)), "0~s");
  assert.equal(plain(f.duration(0.0016)), "<~0.01~s");
  assert.equal(plain(f.duration(0.087)), "0.09~s");
  assert.equal(plain(f.duration(0.5)), "0.5~s");
  assert.equal(plain(f.duration(0.997)), "1~s");
  assert.equal(plain(f.duration(8.24)), "8.2~s");
  assert.equal(plain(f.duration(38)), "38~s");
  assert.equal(plain(f.duration(240)), "4~min");
  assert.equal(plain(f.duration(5040)), "1~h 24~min");
  assert.equal(plain(f.duration(7200)), "2~h");
  assert.equal(plain(f.duration(3 * 86400)), "3~d");
});

test("the clock shows no more than is needed", () => {
  assert.equal(f.clock(at("2026-11-21T14:21:00"), NOW), "14:21");
  assert.equal(f.clock(at("2026-11-23T09:10:00"), NOW), "Mon 09:10");
  assert.equal(f.clock(at("2026-12-12T09:10:00"), NOW), "12 Dec 09:10");
});

test("a moment has seconds on the same day only", () => {
  assert.equal(f.moment(at("2026-11-21T14:21:07"), NOW), "14:21:07");
  assert.equal(f.moment(at("2026-11-23T09:10:07"), NOW), "Mon 09:10");
});

test("memory and cores", () => {
  assert.equal(plain(f.bytes(1610612736)), "1.50~GiB");
  assert.equal(plain(f.bytes(2 * 1024 ** 3)), "2~GiB");
  assert.equal(f.cores(1500), "1.5");
  assert.equal(f.cores(4000), "4");
});

test("gain needs a base", () => {
  assert.equal(f.gain(0, 5), null);
  assert.equal(f.gain(null, 5), null);
  assert.ok(Math.abs((f.gain(1842, 2555) ?? 0) - 0.387) < 0.001);
});

test("kinds of conditions are written as words", () => {
  assert.equal(f.words("NeverFits"), "Never fits");
});

test("clauses of the service become sentences, whose numbers are not broken", () => {
  assert.equal(f.sentences("adds 27 % to 1 370 examples/s.", "", "measured 1 405 of 12 740"), "Adds 27 % to 1\u202f370 examples/s. Measured 1\u202f405 of 12\u202f740");
});

test("steps of ten seconds and more are told in seconds", () => {
  assert.deepEqual(f.unitOfSteps([0.2, 9.9]), { unit: "ms", each: 1000 });
  assert.deepEqual(f.unitOfSteps([9.9, 40]), { unit: "s", each: 1 });
});
