/**
 * Server-sent events over fetch: unlike EventSource it sees heartbeats and statuses, can carry a
 * token, and resumes with Last-Event-ID across restarts of the service.
 */
import { Failed, type Failure, send } from "./http.ts";
import type { Change } from "../words/rows.ts";
import type { BrainEvent } from "./types.ts";

export interface Listener {
  heard(): void;
  event(event: BrainEvent): void;
  /** Samples of these jobs came in. */
  measured(jobs: string[]): void;
  /** Rows of the list of jobs changed. */
  rows(changes: Change[]): void;
  /** These lists changed in a way that no event tells. */
  lists(names: string[]): void;
  lost(why: Failure | null): void;
}

/** Longest pause between two attempts. */
const PAUSE_LIMIT = 10_000;
/** A stream silent for longer is dead: the service sends a heartbeat every 15 s. */
const SILENCE_LIMIT = 40_000;

/** Listens until `stop` is aborted; back-off doubles from half a second, with jitter. */
export async function listen(listener: Listener, stop: AbortSignal): Promise<void> {
  let last = "";
  let pause = 500;
  while (!stop.aborted) {
    try {
      await follow(last, stop, listener, (id) => {
        last = id || last;
        pause = 500;
      });
      listener.lost(null);
    } catch (failed) {
      if (stop.aborted) return;
      listener.lost(failed instanceof Failed ? failed.failure : null);
    }
    await sleep(pause * (0.75 + Math.random() / 2), stop);
    pause = Math.min(PAUSE_LIMIT, pause * 2);
  }
}

async function follow(
  last: string, stop: AbortSignal, listener: Listener, seen: (id: string) => void,
): Promise<void> {
  const silence = new AbortController();
  const both = AbortSignal.any([stop, silence.signal]);
  let timer = setTimeout(() => silence.abort(), SILENCE_LIMIT);
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (last) headers["Last-Event-ID"] = last;
  try {
    const response = await send("/events", {}, { headers, signal: both });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const part = await reader?.read();
      if (!part || part.done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_LIMIT);
      listener.heard();
      const blocks = (rest + part.value).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) seen(hand(block, listener));
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Hands on what a block says and returns its id. */
function hand(block: string, listener: Listener): string {
  let [id, data, kind] = ["", "", ""];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) kind = line.slice(6).trim();
    if (line.startsWith("id:")) id = line.slice(3).trim();
    if (line.startsWith("data:")) data += line.slice(5).trim();
  }
  if (kind === "jobs") listener.rows((JSON.parse(data) as { jobs: Change[] }).jobs);
  else if (kind === "changed") listener.lists((JSON.parse(data) as { lists: string[] }).lists);
  else if (kind === "measured") listener.measured((JSON.parse(data) as { jobs: string[] }).jobs);
  else if (data) listener.event(JSON.parse(data) as BrainEvent);
  return id;
}

export function sleep(milliseconds: number, stop: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const end = () => (clearTimeout(timer), stop.removeEventListener("abort", end), done());
    const timer = setTimeout(end, milliseconds);
    stop.addEventListener("abort", end);
  });
}
