/** The doctor as a page: every check with what was found and what mends it. */
import { jobs, nodes } from "../state/fleet.ts";
import { heardAt, linked } from "../state/link.ts";
import { now } from "../state/now.ts";
import { useResource } from "../state/resource.ts";
import { health, refreshHealth } from "../state/session.ts";
import { Icon } from "../ui/icons.tsx";
import { Command, Heading, Skeleton } from "../ui/parts.tsx";
import { Shell } from "../ui/shell.tsx";
import { age, bytes, count, duration, fixed } from "../words/format.ts";

interface Check {
  ok: boolean;
  title: string;
  found: string;
  mend?: string;
}

/** Clocks further apart than this make freshness doubtful. */
const SKEW_SECONDS = 5;

export function HealthPage() {
  // The size of the database and the clocks of senders change with every sample, so that only a question tells them.
  useResource("health", refreshHealth, { every: 30, concerns: () => false });
  const said = health.value;
  if (!said) return <Shell crumbs={<h1>Health</h1>}><Skeleton label="Asking the doctor" /></Shell>;
  const found = checks();
  const bad = found.filter((check) => !check.ok).length;
  return (
    <Shell crumbs={<h1>Health</h1>}>
      <div class="lower spec doctor">
        <section>
          <Heading title="Doctor" sub={bad === 0 ? `${found.length} checks, no problems` : `${bad} of ${found.length} checks ${bad === 1 ? "needs" : "need"} attention`} />
          {found.sort((one, other) => Number(one.ok) - Number(other.ok)).map((check) => (
            <div class="step" key={check.title}>
              <Icon name={check.ok ? "ended" : "warning"} tone={check.ok ? "mut" : "warn"} />
              <div><h3>{check.title}</h3><p>{check.found}</p>{!check.ok && check.mend && <Command text={check.mend} />}</div>
            </div>
          ))}
        </section>
        <section>
          <Heading title="Service" />
          <dl class="about">
            <dt>Version</dt><dd>{said.version}</dd>
            <dt>Up for</dt><dd>{age(said.started_at, now.value)}</dd>
            <dt>Database</dt><dd>{said.database}, {bytes(said.database_bytes)}</dd>
            <dt>Pools</dt><dd>{said.pools.join(", ") || "—"}</dd>
            <dt>Approval by default</dt><dd>{said.policy_mode}</dd>
            <dt>Signed in as</dt><dd>{said.who}, {said.role}</dd>
          </dl>
        </section>
      </div>
    </Shell>
  );
}

function checks(): Check[] {
  const said = health.value;
  const machines = nodes.value ?? [];
  const silent = machines.filter((node) => !node.ready);
  const active = (jobs.value ?? []).filter((job) => !job.finished_at);
  const lost = active.reduce((sum, { losses }) => sum + losses.gaps + losses.dropped, 0);
  const skew = said?.skew_seconds ?? 0;
  return [
    ...(said?.degraded ?? []).map((sentence): Check => ({ ok: false, title: "The service is degraded", found: sentence, mend: "brain doctor" })),
    { ok: linked.value, title: "Live updates", found: linked.value ? `Last heard ${duration(Math.max(0, Math.round((now.value - heardAt.value) / 1000)))} ago.` : "The event stream is interrupted; this page reconnects by itself.", mend: "brain up" },
    { ok: machines.length > 0 && silent.length === 0, title: "Nodes", found: machines.length === 0 ? "No node has registered, so nothing can start." : silent.length === 0 ? `${count(machines.length, "node")}; all of them report.` : `No reports from ${silent.map((node) => node.name).join(", ")}.`, mend: "brain doctor" },
    { ok: Math.abs(skew) < SKEW_SECONDS, title: "Clocks", found: `The largest offset of a sender is ${duration(Math.abs(skew))}.`, mend: "timedatectl set-ntp true" },
    { ok: lost === 0, title: "Telemetry", found: lost === 0 ? "No sample of an active job is missing." : `${fixed(lost)} samples of active jobs are missing.`, mend: "brain doctor" },
  ];
}
