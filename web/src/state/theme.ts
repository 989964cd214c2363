import { effect, signal } from "@preact/signals";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "brain.theme";

export const theme = signal<Theme>(stored());

/** Grows whenever colours may have changed; canvases redraw on it. */
export const paint = signal(0);

export function startTheme(): void {
  effect(() => {
    const root = document.documentElement;
    if (theme.value === "system") delete root.dataset["theme"];
    else root.dataset["theme"] = theme.value;
    localStorage.setItem(KEY, theme.value);
    paint.value = paint.peek() + 1;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => paint.value++);
}

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "system";
}

function stored(): Theme {
  const said = localStorage.getItem(KEY);
  return THEMES.find((known) => known === said) ?? "system";
}
