/** What happened to a job, newest first. */
import * as calls from "../api/calls.ts";
import type { BrainEvent, JobView, PlanState, PlanVerdict, World } from "../api/types.ts";
import { now } from "../state/now.ts";
import { useResource } from "../state/resource.ts";
import { stateLook, verdictLook } from "../ui/badges.tsx";
import { Icon, type IconName, type Tone } from "../ui/icons.tsx";
import { Heading, Skeleton, Trouble } from "../ui/parts.tsx";
import { instant, moment, words } from "../words/format.ts";
import { Worlds } from "./worlds.tsx";

export function Timeline({ job, worlds }: { job: JobView; worlds: readonly World[] }) {
  const found = useResource(`events ${job.id}`, async () => (await calls.jobEvents(job.id)).items, {
    concerns: (news) => news.job === job.id && !/^(measured|row)/.test(news.kind),
  });
  const { value, failure } = found.state.value;
  return (
    <>
      <Worlds worlds={worlds} until={job.finished_at} />
      <section class="sec">
        <Heading title="Events" sub="newest first" />
        {failure && !value && <Trouble failure={failure} what="events" />}
        {!value && !failure && <Skeleton label="Loading events" />}
        {value && <table class="tbl wrap">
          <caption class="vh">Events, newest first</caption>
          <thead><tr><th class="c-clock">Time</th><th class="c-kind">What</th><th class="c-gen">Of</th><th>Because</th></tr></thead>
          <tbody>
            {value.toReversed().map((event) => {
              const { icon, tone } = look(event);
              return (
                <tr key={event.id}>
                  <td class="mut" title={instant(event.at)}>{moment(event.at, now.value)}</td>
                  <td><span class="badge"><Icon name={icon} tone={tone} />{what(event)}</span></td>
                  <td class="mut">{subject(event)}</td>
                  <td>{event.message}</td>
                </tr>
              );
            })}
          </tbody>
        </table>}
      </section>
    </>
  );
}

/** The verdict of a plan that was measured stands in the place of its state. */
const verdictOf = ({ kind, data }: BrainEvent): PlanVerdict | undefined =>
  kind === "plan.Verified" || kind === "plan.RolledBack" ? (data?.verdict as PlanVerdict | undefined) : undefined;

function what(event: BrainEvent): string {
  const verdict = verdictOf(event);
  return verdict ? `plan ${verdict}` : words(event.kind.replace(".", " ")).toLowerCase();
}

function subject({ kind, subject: about }: BrainEvent): string {
  if (about === null) return "";
  if (kind.startsWith("plan.")) return `g${about}`;
  if (kind.startsWith("world.")) return `w${about}`;
  return kind.startsWith("replica.") ? `r${about}` : "";
}

const WORLDS: Record<string, [IconName, Tone]> = {
  formed: ["starting", "mut"], stepping: ["running", "mut"], held: ["holding", "warn"], "change-failed": ["warning", "warn"],
  hung: ["warning", "warn"], lost: ["warning", "warn"], finished: ["ended", "mut"], stopped: ["cancelled", "mut"],
};

function look(event: BrainEvent): { icon: IconName; tone: Tone } {
  const [area, what = ""] = event.kind.split(".");
  const verdict = verdictOf(event);
  if (verdict) return verdictLook(verdict) ?? stateLook("Verified");
  if (area === "plan") return stateLook(what as PlanState) ?? { icon: "proposed", tone: "mut" };
  if (area === "hold") return { icon: "hold", tone: "mut" };
  if (area === "replica") return { icon: "ready", tone: "mut" };
  const [icon, tone] = WORLDS[what] ?? (what === "Failed" ? ["failed", "bad"] as const : what === "Degraded" ? ["warning", "warn"] as const : ["running", "mut"] as const);
  return { icon, tone };
}
