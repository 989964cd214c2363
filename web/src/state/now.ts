/** The present instant, in milliseconds, once a second: ages tick no faster. */
import { computed, signal } from "@preact/signals";

export const now = signal(Date.now());

/** The present minute: what shows a day and a clock is drawn anew no more often. */
export const minute = computed(() => Math.floor(now.value / 60_000) * 60_000);

export function startClock(): void {
  setInterval(() => (now.value = Date.now()), 1000);
}
