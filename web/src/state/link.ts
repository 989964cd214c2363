/** The live link to the service: what was heard last, and who wants to know of events. */
import { signal } from "@preact/signals";
import { base, bearer } from "../api/http.ts";
import type { Listener } from "../api/live.ts";
import type { Service, Told } from "../api/stream.ts";
import stream from "../api/stream.ts?worker&url";
import type { Change } from "../words/rows.ts";
import { signedInAnew, signedOut } from "./session.ts";

/** A worker that told nothing for so long is gone: it tells of a stream that fails within a minute. */
const DEAD_MS = 90_000;

export const linked = signal(false);
/** When the service was last heard of, milliseconds. */
export const heardAt = signal(Date.now());
/** When the worker last told anything. */
let toldAt = 0;

/**
 * What happened, and to which job: an event's kind, `measured`, `row` (`row.plan` with its plan), or `list.` with the
 * name of a list. Null: news may be missing.
 */
export type News = { kind: string; job: string | null };
type Hearer = (news: News | null) => void;
const hearers = new Set<Hearer>();
const keepers = new Set<(changes: readonly Change[]) => void>();

/** Calls `keeper` with what changed in rows of the list of jobs. */
export function onRows(keeper: (changes: readonly Change[]) => void): () => void {
  keepers.add(keeper);
  return () => keepers.delete(keeper);
}

/** Calls `hearer` with all news, and with null when some may have been missed. */
export function onNews(hearer: Hearer): () => void {
  hearers.add(hearer);
  return () => hearers.delete(hearer);
}

const listener: Listener = {
  heard() {
    heardAt.value = Date.now();
    if (linked.peek()) return;
    linked.value = true;
    tell(null);
  },
  event: tell,
  measured(jobs) {
    for (const job of jobs) tell({ kind: "measured", job });
  },
  rows(changes) {
    for (const keeper of keepers) keeper(changes);
    for (const { id, plan } of changes) tell({ kind: plan === undefined ? "row" : "row.plan", job: id });
  },
  lists(names) {
    for (const name of names) tell({ kind: `list.${name}`, job: null });
  },
  lost(why) {
    linked.value = false;
    if (why?.kind === "signed-out") signedOut();
  },
};

export function startLink(): () => void {
  let port = join(signedInAnew());
  // A network that went leaves the stream open and silent, so a network that is back gets a new one.
  const watched = new AbortController();
  addEventListener("offline", () => (linked.value = false), watched);
  addEventListener("online", () => (port.postMessage(null), (port = join(true))), watched);
  const watch = setInterval(() => {
    if (Date.now() - toldAt < DEAD_MS) return;
    port.postMessage(null);
    linked.value = false;
    port = join(false);
  }, DEAD_MS / 3);
  return () => (clearInterval(watch), watched.abort(), port.postMessage(null));
}

/** Listens to a stream; `anew`: to one that begins now, not to that of the tabs that were there before. */
function join(anew: boolean): MessagePort | Worker {
  // A pasted token is of its tab alone, and some browsers of phones share no workers.
  const port = bearer || typeof SharedWorker === "undefined" ? new Worker(stream) : new SharedWorker(stream).port;
  toldAt = Date.now();
  port.onmessage = ({ data: [name, ...told] }: MessageEvent<Told>) => {
    toldAt = Date.now();
    (listener[name] as (...told: unknown[]) => void)(...told);
  };
  port.postMessage([base, bearer, anew] satisfies Service);
  return port;
}

function tell(news: News | null): void {
  for (const hearer of hearers) hearer(news);
}
