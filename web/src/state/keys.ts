/** Keyboard: single keys and `g` followed by another; silent while someone types. */
import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";

export interface Binding {
  /** `a`, `g o`, `Enter`, `?`. */
  keys: string;
  does: string;
  run: () => void;
}

export const bindings = signal<readonly Binding[]>([]);

let pending = "";
let forget: ReturnType<typeof setTimeout> | undefined;

export function useKeys(list: readonly Binding[], depends: readonly unknown[]): void {
  // Before paint: a key pressed at what is seen must already mean it.
  useLayoutEffect(() => {
    bindings.value = [...bindings.peek(), ...list];
    return () => (bindings.value = bindings.peek().filter((one) => !list.includes(one)));
  }, depends);
}

export function startKeys(palette: () => void): void {
  addEventListener("keydown", (event) => {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      palette();
    } else if (!event.metaKey && !event.ctrlKey && !event.altKey && !busy(event)) press(event);
  });
}

function press(event: KeyboardEvent): void {
  const keys = pending ? `${pending} ${event.key}` : event.key;
  pending = "";
  clearTimeout(forget);
  // The latest binding wins: a page over the application, a dialog over a page.
  const found = bindings.peek().findLast((one) => one.keys === keys);
  if (found) {
    event.preventDefault();
    found.run();
  } else if (bindings.peek().some((one) => one.keys.startsWith(`${event.key} `))) {
    pending = event.key;
    forget = setTimeout(() => (pending = ""), 1200);
  }
}

/** Whether the key belongs to what has the focus: a field, an open dialog, a control. */
function busy(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  if (document.querySelector("dialog[open]")) return true;
  if (target.closest("input, textarea, select, [contenteditable]")) return true;
  return event.key === "Enter" && target.closest("a, button, summary") !== null;
}
