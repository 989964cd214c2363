/** The present instant, in milliseconds, once a second: ages tick no faster. */
import { signal } from "@preact/signals";

export const now = signal(Date.now());

export function startClock(): void {
  setInterval(() => (now.value = Date.now()), 1000);
}
