/** The job document as submitted, and the replicas that came of it. */
import type { JobDetail } from "../api/types.ts";
import { Heading, Time } from "../ui/parts.tsx";
import { ObjectConditions } from "./conditions.tsx";

export function Spec({ detail: { document, replicas, object_conditions } }: { detail: JobDetail }) {
  return (
    <div class="lower spec">
      <section>
        <Heading title="Document" sub="as submitted; the environment shows names only" />
        <pre tabIndex={0} aria-label="Job document">{JSON.stringify(document, null, 2)}</pre>
      </section>
      <section>
        <Heading title="Replicas" sub="as the scaler observes them" />
        {replicas.length === 0 && <p class="quiet">None yet, because the job has not started.</p>}
        {replicas.length > 0 && (
          <div class="scroll" tabIndex={0} role="region" aria-label="Replicas of the job">
            <table class="tbl wrap replicas">
              <caption class="vh">Replicas</caption>
              <thead><tr><th>Replica</th><th>State</th><th>Node</th><th class="c-gen">For</th><th>Started</th><th>Ended</th><th>How</th></tr></thead>
              <tbody>
                {replicas.toReversed().map((one) => (
                  <tr key={`${one.role} ${one.id}`} class={one.state === "exited" ? "off" : ""}>
                    <td>{one.role} {one.id}</td><td>{one.state}</td><td>{one.node}</td><td>g{one.generation}</td>
                    <td><Time at={one.started_at} /></td><td><Time at={one.ended_at} /></td>
                    <td>{[one.exit, one.detail].filter(Boolean).join(": ") || "—"}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
        <ObjectConditions said={object_conditions} />
      </section>
    </div>
  );
}
