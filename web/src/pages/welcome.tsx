/** No jobs yet: because what, do what, and what will appear when. */
import { health } from "../state/session.ts";
import { now } from "../state/now.ts";
import { nodes } from "../state/fleet.ts";
import { Icon } from "../ui/icons.tsx";
import { Command } from "../ui/parts.tsx";
import { PromiseStrip } from "../ui/strip.tsx";
import { age, bytes, count, duration } from "../words/format.ts";

export function Welcome() {
  const said = health.value;
  const machines = nodes.value ?? [];
  return (
    <div class="empty">
      <section>
        <h2>No jobs yet, because nothing was submitted</h2>
        <p class="lead">
          This service has been up for {said ? age(said.started_at, now.value) : "a moment"}. A job appears here as soon as it is
          submitted, its measurements with its first steps; nothing in the script needs to change.
        </p>
        <Step icon="ended" tone="good" title="Service and database answer">
          {said && `${said.database}, ${bytes(said.database_bytes)}. Clocks within ${duration(Math.abs(said.skew_seconds))}. `}
          {machines.length > 0 ? `${count(machines.length, "node")} registered.` : "No node has registered yet."}
        </Step>
        <Step icon="queued" tone="brain" title="Watch the whole loop once" command="make demo">
          Trains a small network, resizes it and verifies the gain, within three minutes.
        </Step>
        <Step icon="queued" tone="mut" title="Submit a script you already have" command="brain submit -f job.yaml">
          The document names the command, and the least and the most replicas.
        </Step>
        <Step icon="queued" tone="mut" title="Is something missing here?" command="brain doctor">
          The doctor checks service, database, nodes and clocks, and prints the remedy.
        </Step>
      </section>
      <section class="soon">
        <h2>Pages fill as a job runs</h2>
        <ul>
          <Soon when="seconds" title="Measured" text="Throughput, data wait, CPU and memory. Measured values are always drawn in ink.">
            <path class="ob" d="M0 14l8-2 8 3 8-4 8 3 8-2 8 3 8-3 8 2 8-3 8 4 8-2 8 2 8-3 8 3" /><line class="base" x1="0" x2="112" y1="28" y2="28" />
          </Soon>
          <Soon when="30 steps" title="A model" text="The gain from more replicas, with its uncertainty. Promised values are always blue.">
            <path class="band" d="M6 30Q50 10 112 2V12Q50 16 6 30Z" /><path class="pr" d="M6 30Q50 13 112 7" />
          </Soon>
          <li>
            <span class="mut">1 resize</span>
            <PromiseStrip promised={{ examples_per_second: 100, low: 94, high: 106, exploring: false }} measured={{ examples_per_second: 103, low: 103, high: 103, exploring: false }} />
            <div><h3>A report card</h3><p>The blue band is the plan's promise, and the dot is the measurement. If the dot is below the band, Brain rolls back.</p></div>
          </li>
        </ul>
      </section>
    </div>
  );
}

interface StepProps {
  icon: "ended" | "queued";
  tone: "good" | "brain" | "mut";
  title: string;
  command?: string;
  children: preact.ComponentChildren;
}

function Step({ icon, tone, title, command, children }: StepProps) {
  return (
    <div class="step">
      <Icon name={icon} tone={tone} />
      <div>
        <h3>{title}</h3>
        <p>{children}</p>
        {command && <Command text={command} />}
      </div>
    </div>
  );
}

function Soon({ when, title, text, children }: { when: string; title: string; text: string; children: preact.ComponentChildren }) {
  return (
    <li>
      <span class="mut">{when}</span>
      <svg class="c" width="112" height="32" aria-hidden="true">{children}</svg>
      <div><h3>{title}</h3><p>{text}</p></div>
    </li>
  );
}
