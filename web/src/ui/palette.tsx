/** ⌘K: jobs, plans, nodes, pages and actions by a few letters. */
import { signal } from "@preact/signals";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { mayDecide } from "../state/access.ts";
import { askFreeze } from "../state/decide.tsx";
import { frozen, jobAddress, jobs, nodes, waiting } from "../state/fleet.ts";
import { go } from "../state/route.ts";
import { nextTheme, theme } from "../state/theme.ts";
import { address } from "../words/attention.ts";
import { changeOf } from "../words/verdicts.ts";
import { jobLook } from "./badges.tsx";
import { Icon, type IconName, type Tone } from "./icons.tsx";
import { RAIL } from "./rail.ts";

const open = signal(false);

export function openPalette(): void {
  open.value = true;
}

interface Entry {
  icon: IconName;
  tone: Tone;
  text: string;
  kind: string;
  run: () => void;
}

function entries(): Entry[] {
  const pages = RAIL.flat().map(({ page, icon, title }): Entry => ({ icon, tone: "mut", text: title, kind: "page", run: () => go(page) }));
  const proposals = waiting.value.map(({ plan, job_name: name }): Entry => ({
    icon: "proposed", tone: "brain", text: `${name} g${plan.generation}: ${changeOf(plan)}`, kind: "plan", run: () => go("jobs", jobAddress(plan.job)),
  }));
  const all = (jobs.value ?? []).map((job): Entry => {
    const { icon, tone, word } = jobLook(job);
    return { icon, tone, text: job.name, kind: word, run: () => go("jobs", address(job)) };
  });
  const machines = (nodes.value ?? []).map((node): Entry => ({ icon: "ready", tone: "mut", text: node.name, kind: "node", run: () => go("nodes") }));
  const actions: Entry[] = [
    { icon: "overview", tone: "mut", text: `Theme: ${theme.value}, change`, kind: "action", run: nextTheme },
    ...(mayDecide() ? [] : [{ icon: "freeze", tone: "mut", text: frozen.value ? "Thaw everything" : "Freeze everything", kind: "action", run: askFreeze } satisfies Entry]),
  ];
  return [...proposals, ...pages, ...all, ...machines, ...actions];
}

export function Palette() {
  return open.value ? <Finder /> : null;
}

function Finder() {
  const host = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  useLayoutEffect(() => host.current?.showModal(), []);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = entries()
    .filter((entry) => words.every((word) => `${entry.text} ${entry.kind}`.toLowerCase().includes(word)))
    .slice(0, 12);
  const run = (entry: Entry | undefined) => {
    if (!entry) return;
    host.current?.close();
    entry.run();
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(found.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(0, at - 1));
    else if (event.key === "Enter") run(found[at]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog ref={host} class="palette" aria-label="Find a job, node, plan or action" onClose={() => (open.value = false)}>
      <input
        role="combobox" aria-expanded="true" aria-controls="found" aria-label="Find a job, node, plan or action" autofocus
        aria-activedescendant={found[at] ? `found-${at}` : undefined} placeholder="Find a job, node, plan or action"
        value={text} onInput={(event) => (setText(event.currentTarget.value), setAt(0))} onKeyDown={keys}
      />
      <ul id="found" role="listbox" aria-label="Found">
        {found.map((entry, index) => (
          <li key={`${entry.kind} ${entry.text}`} id={`found-${index}`} role="option" aria-selected={index === at} onClick={() => run(entry)}>
            <Icon name={entry.icon} tone={entry.tone} />
            <span>{entry.text}</span>
            <span class="dim">{entry.kind}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="mut">Nothing is called “{text}”. Names of jobs and nodes, generations and pages are searched.</p>}
    </dialog>
  );
}
