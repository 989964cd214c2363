/** Is anything wrong, what did Brain do, what did it save. */
import { useEffect } from "preact/hooks";
import type { JobView, PlanView, Recommendation } from "../api/types.ts";
import { HoursStrip } from "../charts/hours.tsx";
import { jobLink, jobs, nodes, plans, savings, waiting } from "../state/fleet.ts";
import { now } from "../state/now.ts";
import { link } from "../state/route.ts";
import { health } from "../state/session.ts";
import { Change, HoldBadge, PlanBadge, Standing } from "../ui/badges.tsx";
import { Icon } from "../ui/icons.tsx";
import { JobTable } from "../ui/jobtable.tsx";
import { Age, Aged, Heading, Skeleton, Time, Trouble } from "../ui/parts.tsx";
import { Shell } from "../ui/shell.tsx";
import { PlanStrip, PromiseStrip, StripKey } from "../ui/strip.tsx";
import { about, byUrgency, type Concern, concerns, failures, holding, pressing, result } from "../words/attention.ts";
import { count, sentences } from "../words/format.ts";
import { counts, missed, standing, tally } from "../words/verdicts.ts";
import { give, money, note, savedOf } from "../words/hours.ts";
import { Figures, usePool } from "./pool.tsx";
import { Welcome } from "./welcome.tsx";

const DAY = 86_400_000;
const DECISIONS = 8;
const FLEET = 8;
const POOLS = 4;

export function Overview() {
  useEffect(() => savings.start(), []);
  const { value, failure } = jobs.state.value;
  return (
    <Shell crumbs={<h1>Overview</h1>}>
      {!value ? (failure ? <Trouble failure={failure} what="jobs" /> : <Skeleton label="Loading jobs" rows={8} />)
        : value.length === 0 ? <Welcome /> : <Filled all={value} />}
    </Shell>
  );
}

function Filled({ all }: { all: readonly JobView[] }) {
  const active = all.filter((job) => !job.finished_at);
  const recent = (plans.value ?? []).filter((view) => counts(view) && now.value - Date.parse(view.plan.updated_at) < DAY);
  const found = concerns(all, waiting.value, nodes.value ?? [], health.value, now.value);
  const fleet = [...all].sort(byUrgency).slice(0, FLEET);
  return (
    <>
      <div class="answers">
        <Wrong active={active} failed={failures(all, now.value).length} found={found} />
        <Did recent={recent} active={active} />
        <Saved />
      </div>
      <HoursSection />
      <div class="two sec">
        <Attention found={found} />
        <Decisions recent={recent} active={active} />
      </div>
      {(health.value?.pools ?? []).slice(0, POOLS).map((name) => <PoolSection key={name} name={name} />)}
      <section class="sec">
        <Heading title="Fleet" sub={`${count(active.length, "active job")}; unusual first`} more={<a href={link("jobs")}>all jobs</a>} />
        <JobTable jobs={fleet} brief />
      </section>
    </>
  );
}

function Answer({ question, children, note }: { question: string; children: preact.ComponentChildren; note: preact.ComponentChildren }) {
  return (
    <div>
      <h2 class="q">{question}</h2>
      <p class="a">{children}</p>
      <p class="n clamp">{note}</p>
    </div>
  );
}

function Wrong({ active, failed, found }: { active: readonly JobView[]; failed: number; found: readonly Concern[] }) {
  const { jobs: looks, nodes: lost } = about(found);
  const machines = nodes.value ?? [];
  const ready = machines.filter((node) => node.ready && node.schedulable).length;
  const machinery = machines.length === 0 ? "no node" : `${ready} of ${count(machines.length, "node")} ready`;
  const named = pressing(found).slice(0, 2).map(({ title }) => `${title}; `);
  const all = active.length + failed;
  const degraded = health.value?.degraded ?? [];
  return (
    <Answer question="Is anything wrong?" note={degraded[0] ?? `${named.join("")}${all - looks} of ${count(all, "job")} as expected, ${machinery}.`}>
      {looks + lost > 0 ? `${concerned(found)} ${looks + lost === 1 ? "needs" : "need"} a look` : degraded.length > 0 ? "The service is degraded" : active.length > 0 ? "Nothing" : "Nothing runs"}
    </Answer>
  );
}

/** `6 jobs and 1 node`, as the answer and the list below it count them. */
function concerned(found: readonly Concern[]): string {
  const { jobs: looks, nodes: lost } = about(found);
  return [looks > 0 && count(looks, "job"), lost > 0 && count(lost, "node")].filter(Boolean).join(" and ");
}

function Did({ recent, active }: { recent: readonly PlanView[]; active: readonly JobView[] }) {
  const holds = active.filter((job) => holding(job.decision)).length;
  const told = tally(recent);
  const short = recent.filter(({ verdict }) => missed(verdict)).map((view) => `${view.job_name} (${standing(view)})`);
  const open = waiting.value.length;
  return (
    <Answer
      question="What did Brain do in the last 24 h?"
      note={<>{told ? `${told}.` : "No plan was made."} {short.length > 0 && `Missed promises: ${short.join(", ")}.`} {open > 0 && <a class="brain med" href={link("inbox")}>{open} {open === 1 ? "waits" : "wait"} for you</a>}</>}
    >
      {count(recent.length, "plan")} <small>and {count(holds, "standing hold")}</small>
    </Answer>
  );
}

function Saved() {
  const of = savings.value?.of[0];
  const question = "What did it save?";
  if (!of) return <Answer question={question} note="Only measured plans count, and no job ran in the last 24 h.">Nothing yet</Answer>;
  if (of.plans.length === 0) return <Answer question={question} note={note(of)}>Nothing yet</Answer>;
  const { saved_money: earned, saved_hours: hours } = of;
  const more = [give(hours), earned === null ? "" : money(earned, savings.value?.currency ?? "")].filter(Boolean).join(" \u00a0·\u00a0 ");
  return <Answer question={question} note={note(of)}>{savedOf(hours.value, of.unit)} <small>{more}<Aged at={savings.value?.until ?? ""} /></small></Answer>;
}

function HoursSection() {
  const { value } = savings;
  const of = value?.of[0];
  if (!value || !of) return null;
  const what = of.unit.replace(/-h$/, "");
  return (
    <section class="sec">
      <Heading title={`${what[0]?.toUpperCase()}${what.slice(1)}-hours`} sub={<>last 24 h, quarter-hours, {count(of.capacity, what)}<Aged at={value.until} /></>} />
      <HoursStrip of={of} since={value.since} until={value.until} plans={(plans.value ?? []).filter(counts)} />
    </section>
  );
}

/** Nothing where nobody shares the pool: then it has no price. */
function PoolSection({ name }: { name: string }) {
  const { value } = usePool(name).state.value;
  if (!value?.round || value.round.shares.length === 0) return null;
  return (
    <section class="sec">
      <Heading title={`Pool ${name}`} sub={value.sharing > 0 ? `shared by ${count(value.sharing, "job")}` : "no longer shared by jobs"} more={<a href={link("pool", name)}>who got what</a>} />
      <Figures pool={value} round={value.round} />
    </section>
  );
}

function Attention({ found }: { found: readonly Concern[] }) {
  const waits = found.length - pressing(found).length;
  return (
    <section>
      <Heading title="Needs attention" sub={[concerned(found), waits > 0 && `${waits} more ${waits === 1 ? "waits" : "wait"}`].filter(Boolean).join("; ")} />
      {found.length === 0 ? (
        <p class="quiet">Nothing. Stragglers, silent nodes, failures and plans that wait for you appear here.</p>
      ) : (
        <ul class="att">
          {found.slice(0, DECISIONS).map((concern) => (
            <li key={`${concern.title} ${concern.to.join("/")}`}>
              <Icon name={concern.icon} tone={concern.tone} />
              <a href={concern.to[0] === "jobs" && concern.to[1] ? jobLink(concern.to[1]) : link(...concern.to)}>{concern.title}</a>
              <span class="when">{concern.at && <Age at={concern.at} />}</span>
              <p title={concern.detail}>{concern.detail}</p>
            </li>
          ))}
        </ul>
      )}
      {found.length > DECISIONS && <p class="cap12"><a class="link" href={link("jobs")}>{count(found.length - DECISIONS, "more concern")}</a>, less urgent</p>}
    </section>
  );
}

interface Row {
  /** Lower stands further up: missed promises, other plans, holds. */
  rank: number;
  at: string;
  key: string;
  show: () => preact.JSX.Element;
}

function Decisions({ recent, active }: { recent: readonly PlanView[]; active: readonly JobView[] }) {
  const rows: Row[] = [
    ...recent.map((view): Row => ({ rank: missed(view.verdict) ? 0 : 1, at: view.plan.updated_at, key: `${view.plan.job} ${view.plan.generation}`, show: () => <PlanRow view={view} /> })),
    ...active.flatMap((job): Row[] => {
      const { decision } = job;
      return holding(decision) ? [{ rank: 2, at: decision.decided_at, key: job.id, show: () => <HoldRow job={job} decision={decision} /> }] : [];
    }),
  ].sort((one, other) => one.rank - other.rank || other.at.localeCompare(one.at));
  return (
    <section>
      <Heading title="Decisions" sub="and why; missed promises first" more={recent.length > 0 && <StripKey />} />
      {rows.length === 0 && <p class="quiet">None yet, because no job was measured long enough. Brain makes the first decision after about thirty steps.</p>}
      <table class="feed">
        <caption class="vh">Decisions and their reasons</caption>
        <colgroup><col class="c-when" /><col class="c-state" /><col class="c-job" /><col class="c-size" /><col /><col class="c-strip" /><col class="c-end" /></colgroup>
        {rows.length > 0 && <thead><tr><th>Time</th><th>Outcome</th><th>Job</th><th>Replicas</th><th>Why</th><th>Promise</th><th class="num">vs promise</th></tr></thead>}
        <tbody>
          {rows.slice(0, DECISIONS).map(({ key, at, show }) => <tr key={key}><td class="mut"><Time at={at} /></td>{show()}</tr>)}
        </tbody>
      </table>
    </section>
  );
}

function PlanRow({ view }: { view: PlanView }) {
  const { plan, job_name: name } = view;
  const end = result(view, now.value);
  const open = ["Proposed", "Approved", "Applying"].includes(plan.state);
  const told = sentences(plan.explanation.reason, plan.outcome.detail);
  return (
    <>
      <td><PlanBadge told={view} /></td>
      <td class="clip med"><a href={jobLink(plan.job)}>{name}</a></td>
      <td><Change plan={plan} open={open} /></td>
      <td class="why"><span class="clamp" title={told}>{told}</span></td>
      <td><PlanStrip told={view} /></td>
      <td class={`num ${end.tone}`}>{end.text}<Standing told={view} /></td>
    </>
  );
}

function HoldRow({ job, decision }: { job: JobView; decision: Recommendation }) {
  return (
    <>
      <td><HoldBadge /></td>
      <td class="clip med"><a href={jobLink(job.id)}>{job.name}</a></td>
      <td>keep {decision.current.replicas}</td>
      <td class="why"><span class="clamp" title={decision.explanation.next_step}>{decision.explanation.reason}</span></td>
      <td><PromiseStrip promised={null} /></td>
      <td class="num mut">—</td>
    </>
  );
}
