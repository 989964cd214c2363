/** Small parts: times, changes, commands, messages, empty states. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Failure } from "../api/http.ts";
import { minute, now } from "../state/now.ts";
import { age, clock, instant } from "../words/format.ts";
import { Icon, type IconName, type Tone } from "./icons.tsx";

export function Time({ at }: { at: string | null | undefined }) {
  if (!at) return <>—</>;
  return <time dateTime={at} title={instant(at)}>{clock(at, minute.value)}</time>;
}

export function Age({ at }: { at: string }) {
  return <time dateTime={at} title={instant(at)}>{age(at, now.value)}</time>;
}

/** How old a figure is, once that is more than a minute. */
export function Aged({ at }: { at: string }) {
  return now.value - Date.parse(at) > 60_000 ? <span class="aged"> · <Age at={at} /> ago</span> : null;
}

/** From → to: the arrow is quiet, the wish is blue and strong. */
export function FromTo({ from, to, open = true }: { from: number | string; to: number | string; open?: boolean }) {
  if (from === to) return <>{to}</>;
  return (
    <span class="nw">
      {from} <span class="arr">→</span> {open ? <b class="brain">{to}</b> : to}
    </span>
  );
}

export function Heading({ title, sub, more }: { title: string; sub?: ComponentChildren; more?: ComponentChildren }) {
  return (
    <div class="h">
      <h2>{title}</h2>
      {sub && <span class="sub">{sub}</span>}
      {more && <span class="more">{more}</span>}
    </div>
  );
}

export function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const words = useRef<HTMLElement>(null);
  const copy = async () => {
    // Over HTTP from another machine a browser has no clipboard; then the words are selected, to be copied by hand.
    const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    if (!done) {
      if (words.current) getSelection()?.selectAllChildren(words.current);
      return;
    }
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <div class="cmd">
      <span class="prompt" aria-hidden="true">$</span>
      <code ref={words}>{text}</code>
      <button type="button" class="btn small" onClick={() => void copy()} aria-label={`Copy: ${text}`}>
        <Icon name="copy" />
        {copied ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

interface MessageProps {
  kind?: "warn" | "quiet" | "bad";
  icon: IconName;
  title: string;
  children?: ComponentChildren;
  action?: ComponentChildren;
}

/** What, since when, what happens next; one action at most. */
export function Message({ kind = "warn", icon, title, children, action }: MessageProps) {
  const tone: Tone = kind === "quiet" ? "mut" : kind;
  return (
    <div class={`note ${kind}`} role={kind === "quiet" ? undefined : "status"}>
      <Icon name={icon} tone={tone} />
      <div>
        <b>{title}</b>
        {children && <p>{children}</p>}
      </div>
      {action && <div class="acts">{action}</div>}
    </div>
  );
}

/** Because X, do Y, and what will appear when. */
export function Empty({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <div class="none">
      <p class="because">{title}</p>
      <div>{children}</div>
    </div>
  );
}

/** What fills the places of a drawing where nothing was measured: `url(#hatch)`. */
export function HatchPattern() {
  return (
    <defs>
      <pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <line class="hatch" x1="0" x2="0" y1="0" y2="7" />
      </pattern>
    </defs>
  );
}

/** Why there is nothing to show, by kind of failure. */
export function Trouble({ failure, what }: { failure: Failure; what: string }) {
  switch (failure.kind) {
    case "missing":
      return <Message kind="quiet" icon="cancelled" title={`There is no such ${what}.`}>{failure.detail}</Message>;
    case "forbidden":
      return <Message kind="quiet" icon="rejected" title={`Your role does not show ${what}.`}>{failure.detail}</Message>;
    case "unreachable":
      return (
        <Message icon="silent" title={`No ${what}, because the service does not answer.`}>
          {failure.detail} This page repeats the request; <code>brain doctor</code> shows the cause.
        </Message>
      );
    default:
      return <Message kind="bad" icon="failed" title={`No ${what}.`}>{failure.detail}</Message>;
  }
}

/** Appears after 200 ms: what comes at once needs no placeholder. */
export function Skeleton({ rows = 4, label }: { rows?: number; label: string }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 200);
    return () => clearTimeout(timer);
  }, []);
  if (!late) return null;
  return (
    <div class="skeleton" role="status">
      <span class="vh">{label}</span>
      {Array.from({ length: rows }, (_, row) => <i key={row} />)}
    </div>
  );
}

interface ButtonProps {
  children: ComponentChildren;
  onClick: () => void;
  kind?: "pri" | "quiet" | "";
  keys?: string;
  /** Why it may not be used; shown dashed, the reason in words. */
  forbidden?: string | null;
  busy?: boolean;
}

export function Button({ children, onClick, kind = "", keys, forbidden, busy }: ButtonProps) {
  const dead = Boolean(forbidden) || busy;
  return (
    <button
      type="button"
      class={`btn ${forbidden ? "" : kind}`}
      aria-disabled={dead ? "true" : undefined}
      aria-busy={busy ? "true" : undefined}
      title={forbidden ?? undefined}
      onClick={() => dead || onClick()}
    >
      {children}
      {keys && !forbidden && <kbd>{keys}</kbd>}
    </button>
  );
}
