/** Name, state and five figures. */
import type { JobDetail, JobView } from "../api/types.ts";
import { maySteer } from "../state/access.ts";
import { askSteer } from "../state/decide.tsx";
import { now } from "../state/now.ts";
import { JobBadge } from "../ui/badges.tsx";
import { Button, FromTo } from "../ui/parts.tsx";
import { stops } from "./failure.tsx";
import { bytes, clock, compared, cores, count, duration, fixed, measuredOf, percent } from "../words/format.ts";

export function Head({ detail }: { detail: JobDetail }) {
  const { job, world } = detail;
  // What failed says it in full, on the same page.
  const reason = stops(detail) ? "" : job.reason;
  return (
    <div class="jobhead">
      <div>
        <div class="t"><h1 title={job.name}>{job.name}</h1><JobBadge job={job} /><Steering job={job} /></div>
        <p class="m">
          {job.replicas_min} … {job.replicas_max} replicas {job.groups.length > 0
            ? job.groups.map((one) => <span key={one.name}><i>·</i><span class="nw">{one.name} {one.replicas_wished > 0 && `${one.replicas_wished} × `}{each(one)}</span></span>)
            : <>of {each(job)}</>}
          <i>·</i>{job.owner}, project {job.project}
          {job.step !== null && <><i>·</i><span class="nw">step {fixed(job.step)}</span></>}
          {world && <><i>·</i><span class="nw">world {world.epoch}</span></>}
          <i>·</i><span class="nw">mode {job.mode}</span>
        </p>
        {(job.state !== "Running" || job.failures > 0) && (
          <p class="m">{[reason, job.failures > 0 && `${count(job.failures, "failure")} so far`, job.exit_code !== null && `exit code ${job.exit_code}`].filter(Boolean).join(" · ")}</p>
        )}
      </div>
      <Figures job={job} />
    </div>
  );
}

function each({ resources, processes_per_replica: processes }: Pick<JobView, "resources" | "processes_per_replica">): string {
  const parts = [
    resources.gpus > 0 ? count(resources.gpus, "GPU") : "",
    resources.cpu_millis > 0 ? `${cores(resources.cpu_millis)} ${resources.cpu_millis === 1000 ? "core" : "cores"}` : "",
    resources.memory_bytes > 0 ? bytes(resources.memory_bytes) : "",
    processes > 1 ? count(processes, "process", "processes") : "",
  ];
  return parts.filter(Boolean).join(", ") || "no reserved resources";
}

function Steering({ job }: { job: JobView }) {
  if (job.finished_at || job.intent === "cancel") return null;
  const forbidden = maySteer(job);
  const suspended = job.intent === "suspend";
  return (
    <span class="steer">
      <Button kind="quiet" forbidden={forbidden} onClick={() => askSteer(job, suspended ? "resume" : "suspend")}>{suspended ? "Resume" : "Suspend"}</Button>
      <Button kind="quiet" forbidden={forbidden} onClick={() => askSteer(job, "cancel")}>Cancel</Button>
    </span>
  );
}

function Figures({ job }: { job: JobView }) {
  const left = job.ends_at ? (Date.parse(job.ends_at) - now.value) / 1000 : null;
  const late = job.conditions.some(({ kind }) => kind === "Late");
  const losses = job.losses.gaps + job.losses.dropped;
  return (
    <dl class="kv">
      <Figure label="Progress" unit={job.progress === null ? "no steps declared" : ""}>{percent(job.progress, 1)}</Figure>
      {job.finished_at
        ? <Figure label="Ended" unit={`after ${duration((Date.parse(job.finished_at) - Date.parse(job.created_at)) / 1000)}`}>{clock(job.finished_at, now.value)}</Figure>
        : <Figure label="Ends" unit={left !== null && left > 0 ? `in ${duration(left)}` : ""} odd={late && "after its deadline"}>{clock(job.ends_at, now.value)}</Figure>}
      <Figure label="Throughput" unit={throughputNote(job)}>{compared(job.throughput?.examples_per_second)}</Figure>
      <Figure label="Replicas" unit={`of ${job.replicas_max}`}>{job.finished_at ? "—" : <FromTo from={job.replicas} to={job.replicas_wished} />}</Figure>
      {job.memory && <Figure label="Ahead of storage" unit={memoryNote(job.memory)}>{job.memory.off ? "off" : duration(job.memory.ahead_seconds)}</Figure>}
      <Figure label="Telemetry lost" unit={losses === 1 ? "sample" : "samples"}>{fixed(losses)}</Figure>
    </dl>
  );
}

function memoryNote({ off, buddy, ahead_seconds }: NonNullable<JobView["memory"]>): string {
  if (off) return "checkpoints go to storage only";
  if (buddy === null) return ahead_seconds > 0 ? "in memory" : "all on storage";
  return buddy ? "copied to another host" : "not copied yet";
}

function throughputNote(job: JobView): string {
  if (!job.throughput) return "";
  return job.promised ? `of ${measuredOf(null, job.promised)} ${job.unit_of_throughput}` : job.unit_of_throughput;
}

function Figure({ label, unit, odd, children }: { label: string; unit: string; odd?: string | false; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children} {unit && <small>{unit}</small>}{odd && <small class="warn">, {odd}</small>}</dd>
    </div>
  );
}
