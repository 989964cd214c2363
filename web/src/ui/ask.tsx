/** One dialog for every decision: it repeats what will happen and takes Enter. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Failed } from "../api/http.ts";
import { said } from "../state/session.ts";
import { Message } from "./parts.tsx";

export interface Question {
  title: string;
  detail: ComponentChildren;
  confirm: string;
  /** Whether to ask why: not at all, if one likes, or before anything else. */
  why: "no" | "optional" | "first";
  /** Does it and returns what to say afterwards. */
  run: (why: string) => Promise<string>;
  /** What changed since it was seen, and the same question about the present; null where it is moot. */
  changed?: () => Promise<{ told: ComponentChildren; again: Question | null }>;
}

const question = signal<Question | null>(null);
export const notice = signal("");

export function ask(one: Question): void {
  question.value = one;
}

export function AskDialog() {
  const asked = question.value;
  return asked ? <Dialog key={asked.title} first={asked} /> : null;
}

function Dialog({ first }: { first: Question }) {
  const host = useRef<HTMLDialogElement>(null);
  const [asked, setAsked] = useState<Question | null>(first);
  const [why, setWhy] = useState("");
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState<ComponentChildren>(null);
  useLayoutEffect(() => host.current?.showModal(), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    // A dialog that Escape just closed answers nothing any more.
    if (busy || !asked || !host.current?.open) return;
    setBusy(true);
    try {
      tell(await asked.run(why.trim()));
      host.current?.close();
    } catch (failed) {
      const conflict = failed instanceof Failed && failed.failure.kind === "conflict";
      const now = conflict && asked.changed ? await asked.changed() : null;
      setTrouble(
        <Message kind={now ? "warn" : "bad"} icon={now ? "warning" : "failed"} title={said(failed)}>
          {now?.told}
        </Message>,
      );
      if (now) setAsked(now.again);
    }
    setBusy(false);
  };
  return (
    <dialog ref={host} class="ask" aria-labelledby="ask-title" onClose={() => (question.value = null)}>
      <form onSubmit={(event) => void submit(event)}>
        <h2 id="ask-title">{first.title}</h2>
        <div class="detail">{(asked ?? first).detail}</div>
        {trouble}
        {first.why !== "no" && asked && (
          <label>
            Why <span class="mut">kept in the audit log</span>
            <input value={why} onInput={(event) => setWhy(event.currentTarget.value)} autofocus={first.why === "first"} maxLength={500} />
          </label>
        )}
        <div class="acts">
          <button type="button" class="btn" onClick={() => host.current?.close()}>{asked ? "Not now" : "Close"}</button>
          {asked && (
            <button type="submit" class="btn pri" autofocus={first.why !== "first"} aria-busy={busy ? "true" : undefined}>
              {busy ? "Asking the service" : asked.confirm} <kbd>Enter</kbd>
            </button>
          )}
        </div>
      </form>
    </dialog>
  );
}

let quiet: ReturnType<typeof setTimeout> | undefined;

export function tell(text: string): void {
  notice.value = text;
  clearTimeout(quiet);
  quiet = setTimeout(() => (notice.value = ""), 8000);
}

export function Notice() {
  return <div class="notice" role="status">{notice.value && <span>{notice.value}</span>}</div>;
}
