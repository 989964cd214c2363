/** What holds of a job beside its state, and what its cluster says of its object. */
import type { JobDetail, JobView } from "../api/types.ts";
import { Icon } from "../ui/icons.tsx";
import { Heading, Time } from "../ui/parts.tsx";
import { words } from "../words/format.ts";

/** Said elsewhere on the page: by a message, in the head, by Brain's card, in the top bar, by the ranks. */
const ELSEWHERE = new Set(["Hung", "StaleTelemetry", "Late", "Holding", "AdviseOnly", "Frozen", "Straggler"]);

export function Conditions({ job }: { job: JobView }) {
  const told = job.conditions.filter(({ kind }) => !ELSEWHERE.has(kind));
  if (told.length === 0) return null;
  return (
    <ul class="att told" aria-label="Conditions">
      {told.map(({ kind, reason }) => (
        <li key={`${kind} ${reason}`}><Icon name="warning" tone="warn" /><p><b>{words(kind)}:</b> {reason}</p></li>
      ))}
    </ul>
  );
}

const HOLDS = { true: "yes", false: "no", null: "not known" };

/** Every condition of the object, as `kubectl describe` shows them. */
export function ObjectConditions({ said }: { said: JobDetail["object_conditions"] }) {
  if (said.length === 0) return null;
  return (
    <section class="sec-s">
      <Heading title="Conditions" sub="of its object, as the cluster shows them" />
      <table class="tbl wrap">
        <caption class="vh">Conditions of the object</caption>
        <thead><tr><th class="c-kind">Condition</th><th class="c-clock">Holds</th><th>Because</th><th class="c-clock">Since</th></tr></thead>
        <tbody>
          {said.map(({ type, status, reason, message, since }) => (
            <tr key={type}>
              <td>{type}</td><td>{HOLDS[`${status}`]}</td><td>{reason}{message && `: ${message}`}</td><td><Time at={since} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
