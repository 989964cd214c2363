/** Who is asking, and what that role may do. */
import { computed, signal } from "@preact/signals";
import * as calls from "../api/calls.ts";
import { base, Failed, useService } from "../api/http.ts";
import type { Health, Role } from "../api/types.ts";
import { decoded, replace } from "./route.ts";

export type Session =
  | { kind: "starting" }
  | { kind: "signed-out"; why: string }
  | { kind: "unreachable"; why: string }
  | { kind: "ready" };

export const session = signal<Session>({ kind: "starting" });
export const health = signal<Health | null>(null);

const RANK: Record<string, number> = { agent: 0, scaler: 0, viewer: 1, submitter: 2, operator: 3, admin: 4 };

const NOT_WHOLE = "The link is incomplete. Copy the whole link, or print another one.";

let anew = false;

/** True once after somebody signed in: streams of who was signed in before are not theirs. */
export function signedInAnew(): boolean {
  const was = anew;
  anew = false;
  return was;
}

/** Why a sign-in link was of no use to somebody who is signed in all the same; "" otherwise. */
export const refusedLink = signal("");

const rank = computed(() => RANK[health.value?.role ?? ""] ?? 0);

/** Null where the role suffices, else the missing role in words. */
export function missing(role: Role): string | null {
  return rank.value >= (RANK[role] ?? 0) ? null : `needs role ${role}; you are ${health.value?.role ?? "signed out"}`;
}

/** Uses up a one-time code of the address, then asks who we are. */
export async function startSession(): Promise<void> {
  const code = /^#\/?signin(?:=(.*))?$/.exec(location.hash);
  let refused = "";
  if (code) {
    replace(location.pathname + location.search);
    const whole = decoded(code[1] ?? "");
    refused = whole ? await calls.signIn(whole).then(() => "", said) : NOT_WHOLE;
    refusedLink.value = refused;
    anew = !refused;
  }
  // Who only comes along was refused nothing.
  await enter(() => refused);
}

export async function signInWith(token: string): Promise<void> {
  useService(base, token.trim());
  await enter(said);
}

export async function refreshHealth(): Promise<void> {
  health.value = await calls.health();
}

export function signedOut(): void {
  if (session.peek().kind !== "signed-out") session.value = { kind: "signed-out", why: "The session has ended, or was revoked." };
}

/** Asks who we are; `told` says what to tell of a refusal. */
async function enter(told: (failed: unknown) => string): Promise<void> {
  try {
    await refreshHealth();
    session.value = { kind: "ready" };
  } catch (failed) {
    const away = failed instanceof Failed && failed.failure.kind === "unreachable";
    session.value = away ? { kind: "unreachable", why: said(failed) } : { kind: "signed-out", why: told(failed) };
  }
}

export function said(failed: unknown): string {
  return failed instanceof Error ? failed.message : String(failed);
}
