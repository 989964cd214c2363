/** Tokens as colours that a canvas understands. */
export type Token = "ink" | "ink-3" | "line" | "line-2" | "brain" | "band" | "s2" | "h1" | "page";

export type Palette = Record<Token, string>;

const TOKENS: readonly Token[] = ["ink", "ink-3", "line", "line-2", "brain", "band", "s2", "h1", "page"];

/** Resolves the tokens as `near` sees them; `light-dark()` is resolved only for a used colour. */
export function palette(near: Element): Palette {
  const probe = near.appendChild(document.createElement("i"));
  const found = TOKENS.map((token) => {
    probe.style.color = `var(--c-${token})`;
    return [token, getComputedStyle(probe).color] as const;
  });
  probe.remove();
  return Object.fromEntries(found) as Palette;
}
