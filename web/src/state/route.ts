/** The address after `#`: deep links work behind any prefix, without help of the service. */
import { computed, signal } from "@preact/signals";

const hash = signal(location.hash);

export interface Route {
  /** `jobs` in `#/jobs/digits/logs?q=x`. */
  page: string;
  /** `["digits", "logs"]`. */
  rest: string[];
  query: URLSearchParams;
}

export const route = computed<Route>(() => {
  const [path = "", query = ""] = hash.value.replace(/^#\/?/, "").split("?");
  const [page = "", ...rest] = path.split("/").map((part) => decoded(part) ?? part);
  return { page: page || "overview", rest, query: new URLSearchParams(query) };
});

/** A part of an address as it was meant; null where it was cut in the middle of a letter. */
export function decoded(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch {
    return null;
  }
}

export function startRoute(): void {
  addEventListener("hashchange", () => (hash.value = location.hash));
}

export function link(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** Puts another address in place of the present one, so that nobody finds it in the history. */
export function replace(address: string): void {
  history.replaceState(null, "", address);
  hash.value = location.hash;
}

export function go(...parts: string[]): void {
  location.hash = link(...parts);
}

/** Changes the query of the present address without adding to the history. */
export function setQuery(change: Record<string, string>): void {
  const query = new URLSearchParams(route.value.query);
  for (const [key, value] of Object.entries(change))
    if (value) query.set(key, value);
    else query.delete(key);
  const path = location.hash.split("?")[0] || "#/overview";
  const text = query.toString();
  replace(path + (text ? `?${text}` : ""));
}
