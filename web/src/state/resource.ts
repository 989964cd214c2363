/** Something loaded from the API that stays fresh: by news; what nobody tells is asked for again. */
import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Failed, type Failure } from "../api/http.ts";
import { linked, type News, onNews } from "./link.ts";
import { Turns } from "../words/turns.ts";
import { said, signedOut } from "./session.ts";

/** Milliseconds for which a first load waits for the link. */
const UNLINKED = 2000;
/** Milliseconds between attempts that fail. */
const AGAIN = 5000;

export interface Loaded<T> {
  /** The newest answer; kept while later ones fail. */
  value: T | null;
  at: number;
  failure: Failure | null;
}

export interface Freshness {
  /** Seconds between loads without any news, of what nobody can tell; its user says why. */
  every?: number;
  /** News that make it worth loading now; all where absent. */
  concerns?: (news: News) => boolean;
  /** Seconds that two loads are apart at least: news are coalesced to 1 Hz where absent. */
  quiet?: number;
}

export class Resource<T> {
  readonly state: Signal<Loaded<T>> = signal({ value: null, at: 0, failure: null });
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly turns = new Turns();
  private running = false;
  private forget: (() => void) | undefined;

  constructor(
    private readonly load: () => Promise<T>,
    private readonly freshness: Freshness,
  ) {}

  get value(): T | null {
    return this.state.value.value;
  }

  start(): () => void {
    const { concerns } = this.freshness;
    this.running = true;
    this.forget = onNews((news) => {
      if (news === null || !concerns || concerns(news)) this.soon();
    });
    // The link tells as it comes about, and what is loaded after it misses no news.
    if (linked.peek()) void this.refresh();
    else this.again(UNLINKED);
    return () => {
      this.running = false;
      this.forget?.();
      clearTimeout(this.timer);
    };
  }

  /** Puts what was told into the newest answer. */
  change(told: (value: T) => T): void {
    const { value, failure } = this.state.peek();
    if (value !== null) this.state.value = { value: told(value), at: Date.now(), failure };
  }

  /** Loads now and resolves when the answer is in place. */
  async refresh(): Promise<void> {
    clearTimeout(this.timer);
    const turn = this.turns.begin(Date.now());
    try {
      const value = await this.load();
      if (this.turns.shows(turn)) this.state.value = { value, at: Date.now(), failure: null };
    } catch (failed) {
      this.fail(failed);
    }
    this.turns.end(Date.now());
    if (this.running) this.again(this.turns.afterEnd(Date.now(), this.every, this.quiet));
  }

  private get every(): number | null {
    // An answer that did not come is asked for again in any case.
    const { every } = this.freshness;
    return every !== undefined ? every * 1000 : this.state.peek().failure ? AGAIN : null;
  }

  private get quiet(): number {
    return (this.freshness.quiet ?? 1) * 1000;
  }

  private soon(): void {
    this.again(this.turns.afterNews(Date.now(), this.quiet));
  }

  private again(milliseconds: number | null): void {
    clearTimeout(this.timer);
    if (milliseconds !== null) this.timer = setTimeout(() => void this.refresh(), milliseconds);
  }

  private fail(failed: unknown): void {
    const failure: Failure =
      failed instanceof Failed ? failed.failure : { kind: "unreachable", detail: said(failed) };
    if (failure.kind === "signed-out") signedOut();
    this.state.value = { ...this.state.peek(), failure };
  }
}

/** A resource that lives as long as the component and its `key`. */
export function useResource<T>(key: string, load: () => Promise<T>, freshness: Freshness): Resource<T> {
  const resource = useMemo(() => new Resource(load, freshness), [key]);
  useEffect(() => resource.start(), [resource]);
  return resource;
}
