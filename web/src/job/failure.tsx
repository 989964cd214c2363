/** Who failed first and why, of the newest world that failed or stood still. */
import type { JobDetail, World } from "../api/types.ts";
import { Heading, Time } from "../ui/parts.tsx";

/** The newest world with a finding. */
const found = (worlds: readonly World[]): World | undefined => worlds.find((world) => world.diagnosis);

/** Whether the finding is what stops the job now; else a later world trains. */
export function stops({ job, world, worlds }: JobDetail): boolean {
  const failed = found(worlds);
  if (!failed) return false;
  return job.state === "Failed" || job.state === "Degraded" || hangs(job) || (!job.finished_at && failed.epoch === world?.epoch && failed.ended_at !== null);
}

export const hangs = (job: JobDetail["job"]): boolean => job.conditions.some(({ kind }) => kind === "Hung");

/** `urgent`: it is why the job stands, so it has the largest words of the page. */
export function Failure({ worlds, urgent }: { worlds: readonly World[]; urgent: boolean }) {
  const world = found(worlds);
  const why = world?.diagnosis;
  if (!world || !why) return null;
  return (
    <section class={urgent ? "rec failure" : "sec-s failure"} aria-label="What failed">
      <Heading title="What failed" sub={<>world {world.epoch}, {why.kind}{world.ended_at && <>, <Time at={world.ended_at} /></>}</>} />
      <p class={urgent ? "because" : ""}>{why.sentence}.</p>
      {why.next_step && <p class="cap12">Then: {why.next_step}.</p>}
      {why.evidence.length > 0 && (
        <dl class="about cap12">
          {why.evidence.map(({ label, value }) => <Fact key={label} name={label}>{value}</Fact>)}
        </dl>
      )}
      {why.traceback && <Text name="Traceback" text={why.traceback} />}
      {why.attachments.map(({ name, text }) => <Text key={name} name={name} text={text} />)}
    </section>
  );
}

function Fact({ name, children }: { name: string; children: string }) {
  return <><dt>{name}</dt><dd>{children}</dd></>;
}

function Text({ name, text }: { name: string; text: string }) {
  return <details><summary class="cap12">{name}</summary><pre tabIndex={0} aria-label={name}>{text}</pre></details>;
}
