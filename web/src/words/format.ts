/**
 * Numbers and time as DESIGN.md writes them. Pure: the present instant is always an argument.
 *
 * Spaces inside numbers are narrow, none before a unit breaks; the minus is a true minus; what is not
 * known is a dash, never 0.
 */

/** Between groups of digits. */
export const NARROW = "\u202f";
/** Before a unit, where a narrow one is hardly seen. */
export const SPACE = "\u00a0";
export const MINUS = "\u2212";
export const UNKNOWN = "—";
export const ARROW = "→";

export type Maybe<T> = T | null | undefined;

export interface Interval {
  examples_per_second: number;
  low: number;
  high: number;
}

/** `Never fits` of `NeverFits`. */
export function words(kind: string): string {
  return kind.replace(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

/** `1 842.5`: fixed decimals, groups of three, true minus. */
export function fixed(value: Maybe<number>, decimals = 0): string {
  if (value == null || !Number.isFinite(value)) return UNKNOWN;
  const text = Math.abs(value).toFixed(decimals);
  const [whole = "0", part] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, NARROW);
  const sign = value < 0 && Number(text) !== 0 ? MINUS : "";
  return sign + grouped + (part ? `.${part}` : "");
}

/** Decimals that leave `figures` significant figures; none from 100 on with three. */
export function decimalsFor(value: number, figures = 3): number {
  const size = Math.abs(value);
  if (size === 0 || !Number.isFinite(size)) return 0;
  const magnitude = Math.floor(Math.log10(size)) + 1;
  return Math.min(6, Math.max(0, figures - magnitude));
}

/** Rounded to `figures` significant figures: `1 840`, `96.2`, `0.031`. */
export function quantity(value: Maybe<number>, figures = 3): string {
  if (value == null || !Number.isFinite(value)) return UNKNOWN;
  const rounded = Number(value.toPrecision(figures));
  return fixed(rounded, decimalsFor(rounded, figures));
}

/** For values that stand beside each other: a fourth figure from 1 000 on, `1 842 of 1 850`. */
export function compared(value: Maybe<number>): string {
  return quantity(value, value != null && Math.abs(value) >= 999.5 ? 4 : 3);
}

/** Every value of a column with the decimals of the column's largest. */
export function column(values: readonly Maybe<number>[], figures = 3): string[] {
  const known = values.filter((value): value is number => value != null);
  const decimals = decimalsFor(Math.max(0, ...known.map(Math.abs)), figures);
  return values.map((value) => fixed(value, decimals));
}

/** `61.4 %` of a share from 0 to 1. */
export function percent(share: Maybe<number>, decimals = 0): string {
  return share == null ? UNKNOWN : `${fixed(share * 100, decimals)}${SPACE}%`;
}

/** `+34 %`, `−2.1 %`: a change with its sign. */
export function change(share: Maybe<number>, decimals = 0): string {
  return share == null ? UNKNOWN : `${signed(share * 100, decimals)}${SPACE}%`;
}

/** `+34`, `−2.1`, `0`. */
export function signed(value: number, decimals = 0): string {
  const text = fixed(value, decimals);
  return value > 0 && Number(value.toFixed(decimals)) !== 0 ? `+${text}` : text;
}

/** Half the 90 % interval, `±110`; asymmetric ones as `+28 … +41` against the centre. */
export function uncertainty(promise: Interval): string {
  const { examples_per_second: centre, low, high } = promise;
  const [below, above] = [centre - low, high - centre];
  const half = (below + above) / 2;
  if (half <= 0) return "±0";
  if (symmetric(promise)) return `±${quantity(half, 2)}`;
  return `${MINUS}${quantity(below, 2)} … +${quantity(above, 2)}`;
}

/** Whether both sides of the interval are about as long. */
function symmetric({ examples_per_second: centre, low, high }: Interval): boolean {
  return Math.abs(high + low - 2 * centre) <= 0.125 * (high - low);
}

/** `2 555 ±110`. */
export function promised(promise: Maybe<Interval>): string {
  if (!promise) return UNKNOWN;
  return `${compared(promise.examples_per_second)} ${uncertainty(promise)}`;
}

/** Sentences from clauses of the service, whose numbers stay on one line. */
export function sentences(...clauses: readonly string[]): string {
  const said = clauses.filter(Boolean).map((one) => `${one.charAt(0).toUpperCase()}${one.slice(1).replace(/\.$/, "")}`);
  return said.join(". ").replace(/(\d) (?=\d{3}\b)/g, `$1${NARROW}`);
}

/** `2 310 of 2 900`: measured against promised; a promise alone keeps its ± where that is short. */
export function measuredOf(measured: Maybe<Interval>, promise: Maybe<Interval>): string {
  if (!measured && promise) return symmetric(promise) ? promised(promise) : compared(promise.examples_per_second);
  if (!measured) return UNKNOWN;
  if (!promise) return compared(measured.examples_per_second);
  return `${compared(measured.examples_per_second)} of ${compared(promise.examples_per_second)}`;
}

/** Relative change between two values; null where either is missing or the base is 0. */
export function gain(from: Maybe<number>, to: Maybe<number>): number | null {
  return from == null || to == null || from === 0 ? null : to / from - 1;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/** `1.50 GiB`, `2 GiB`. */
export function bytes(value: Maybe<number>): string {
  if (value == null) return UNKNOWN;
  const power = value < 1 ? 0 : Math.min(4, Math.floor(Math.log2(value) / 10));
  const amount = quantity(value / 1024 ** power).replace(/\.0+$/, "");
  return `${amount}${SPACE}${UNITS[power]}`;
}

/** Cores out of thousandths: `1.5`. */
export function cores(millis: number): string {
  return fixed(millis / 1000, millis % 1000 === 0 ? 0 : millis % 100 === 0 ? 1 : 2);
}

/** `1 replica`, `4 replicas`. */
export function count(value: number, noun: string, plural = `${noun}s`): string {
  return `${fixed(value)} ${value === 1 ? noun : plural}`;
}

/** `0.09 s`, `38 s`, `4 min`, `1 h 24 min`, `3 d`: a length of time. */
export function duration(seconds: Maybe<number>): string {
  if (seconds == null || !Number.isFinite(seconds)) return UNKNOWN;
  const size = Math.max(0, seconds);
  if (size > 0 && size < 0.005) return `<${SPACE}0.01${SPACE}s`;
  if (size < 0.995) return `${fixed(size, 2).replace(/\.?0+$/, "")}${SPACE}s`;
  if (size < 9.95) return `${fixed(size, 1).replace(/\.0$/, "")}${SPACE}s`;
  if (size < 119.5) return `${Math.round(size)}${SPACE}s`;
  const minutes = Math.round(size / 60);
  if (minutes < 60) return `${minutes}${SPACE}min`;
  if (minutes < 48 * 60) return hours(minutes);
  return `${Math.round(minutes / 1440)}${SPACE}d`;
}

function hours(minutes: number): string {
  const rest = minutes % 60;
  return `${Math.floor(minutes / 60)}${SPACE}h${rest ? ` ${rest}${SPACE}min` : ""}`;
}

/** How long ago, in whole units so that it ticks calmly: `8 s`, `4 min`. */
export function age(at: string, now: number): string {
  const seconds = Math.max(0, (now - Date.parse(at)) / 1000);
  return duration(seconds < 10 ? Math.floor(seconds) : seconds);
}

const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"] as const;
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

/** `14:21` on the same day, `Mon 09:10` within a week either way, else `12 Dec 09:10`. */
export function clock(at: Maybe<string | number>, now: number): string {
  if (at == null) return UNKNOWN;
  const [then, today] = [new Date(at), new Date(now)];
  const time = `${two(then.getHours())}:${two(then.getMinutes())}`;
  if (then.toDateString() === today.toDateString()) return time;
  if (Math.abs(then.getTime() - now) < 6.5 * 86_400_000) return `${DAYS[then.getDay()]} ${time}`;
  return `${then.getDate()} ${MONTHS[then.getMonth()]} ${time}`;
}

/** `14:32:08`. */
export function seconds(at: string | number): string {
  const then = new Date(at);
  return `${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}`;
}

/** `14:32:08` of the same day, else the day and `09:10`. */
export function moment(at: string, now: number): string {
  const day = clock(at, now);
  return day.includes(" ") ? day : seconds(at);
}

/** The whole instant with its zone, for hovering. */
export function instant(at: string): string {
  const then = new Date(at);
  const offset = -then.getTimezoneOffset();
  const zone = `${offset < 0 ? MINUS : "+"}${two(Math.floor(Math.abs(offset) / 60))}:${two(Math.abs(offset) % 60)}`;
  return `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())} ${seconds(at)} ${zone}`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

/** The unit of step times beside each other, and how many of it a second has; a step of 10 s and more
 *  is told in seconds, because the figures of milliseconds do not fit an axis. */
export function unitOfSteps(seconds: readonly number[]): { unit: string; each: number } {
  return Math.max(...seconds) >= 10 ? { unit: "s", each: 1 } : { unit: "ms", each: 1000 };
}
