/** One way to the service: JSON over fetch, problems as typed errors. */
import type { Problem } from "./types.ts";

export type Failure =
  | { kind: "signed-out"; detail: string }
  | { kind: "forbidden"; detail: string }
  | { kind: "missing"; detail: string }
  | { kind: "conflict"; detail: string }
  | { kind: "refused"; detail: string; status: number }
  | { kind: "unreachable"; detail: string };

export class Failed extends Error {
  constructor(readonly failure: Failure) {
    super(failure.detail);
  }
}

type Query = Record<string, string | number | undefined>;

/** Longest that an answer may take, in milliseconds. */
const ANSWER_LIMIT = 60_000;

/** Where the service is, which a worker is told, and the token to show it: "" for the cookie. */
export let [base, bearer] = [globalThis.document?.baseURI ?? "", ""];

/** Sends every request there from now on. */
export function useService(at: string, token: string): void {
  [base, bearer] = [at, token];
}

/** Absolute address of a path below `/api/v1`, wherever an ingress mounts the service. */
export function address(path: string, query: Query = {}): string {
  const url = new URL(`api/v1${path}`, base);
  for (const [key, value] of Object.entries(query))
    if (value !== undefined && value !== "") url.searchParams.set(key, String(value));
  return url.href;
}

/** Sends a request; answers of 400 and above become `Failed`. */
export async function send(path: string, query: Query = {}, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (bearer) headers.set("Authorization", `Bearer ${bearer}`);
  let response: Response;
  try {
    response = await fetch(address(path, query), { ...init, headers, credentials: "same-origin" });
  } catch (silent) {
    const late = silent instanceof DOMException && silent.name === "TimeoutError";
    if (init.signal?.aborted && !late) throw silent;
    throw new Failed({ kind: "unreachable", detail: "The service does not answer." });
  }
  if (response.ok) return response;
  throw new Failed(failure(response.status, await problem(response)));
}

/** An answer that does not come is given up, so that another question can be asked. */
export async function get<T>(path: string, query: Query = {}): Promise<T> {
  const response = await send(path, query, { signal: AbortSignal.timeout(ANSWER_LIMIT) });
  return (await response.json()) as T;
}

/** A POST with a key that makes a repeated one a single action. */
export async function post<T>(path: string, body: unknown, query: Query = {}): Promise<T> {
  const response = await send(path, query, {
    method: "POST",
    headers: { "Content-Type": "application/json", "Idempotency-Key": key() },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  return (text ? JSON.parse(text) : null) as T;
}

export async function remove<T>(path: string): Promise<T> {
  const response = await send(path, {}, { method: "DELETE" });
  return (await response.json()) as T;
}

function key(): string {
  const words = crypto.getRandomValues(new Uint32Array(4));
  return Array.from(words, (word) => word.toString(16).padStart(8, "0")).join("");
}

async function problem(response: Response): Promise<string> {
  try {
    const said = (await response.json()) as Problem;
    return said.detail || said.title;
  } catch {
    return `The answer has HTTP status ${response.status} and no explanation, so it is not from Brain: check the proxy in front of the service.`;
  }
}

function failure(status: number, detail: string): Failure {
  if (status === 401) return { kind: "signed-out", detail };
  if (status === 403) return { kind: "forbidden", detail };
  if (status === 404) return { kind: "missing", detail };
  if (status === 409 || status === 412) return { kind: "conflict", detail };
  if (status >= 502) return { kind: "unreachable", detail };
  return { kind: "refused", detail, status };
}
