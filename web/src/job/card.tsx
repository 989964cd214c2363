/** The one thing to act on: a plan that is under way, or a hold and its next step. */
import type { Evidence, Explanation, JobView, PlanView, Recommendation, ScalePlan, World } from "../api/types.ts";
import { mayDecide, maySteer } from "../state/access.ts";
import { askAbout, askSteer } from "../state/decide.tsx";
import { useKeys } from "../state/keys.ts";
import { now } from "../state/now.ts";
import { Change, HoldBadge, PlanBadge } from "../ui/badges.tsx";
import { Aged, Button, Command, Time } from "../ui/parts.tsx";
import { GainBar, PromiseStrip } from "../ui/strip.tsx";
import { change, clock, compared, count, duration, fixed, gain, measuredOf, percent, promised, uncertainty } from "../words/format.ts";
import { divided, gpusOf, processesOf } from "../words/groups.ts";
import { changeOf, missed, resizes, wayBack } from "../words/verdicts.ts";
import { PlanTrack } from "./track.tsx";

const ACTIVE = new Set(["Proposed", "Approved", "Applying", "Applied"]);

interface CardProps {
  job: JobView;
  world: World | null;
  plans: readonly PlanView[];
  onChange: () => void;
}

export function Card({ job, world, plans }: CardProps) {
  const active = plans.find(({ plan }) => ACTIVE.has(plan.state));
  if (active) return <PlanCard job={job} view={active} world={world} />;
  const { decision } = job;
  const newest = plans[0];
  // A rollback promised nothing: the plan that it undid did, and that promise was missed.
  const undone = newest?.verdict === "restored" && job.verdict === "rolled back";
  const last = undone ? plans.find(({ verdict }) => verdict === "rolled back") ?? newest : newest;
  if (job.finished_at) return last ? <PlanCard job={job} view={last} world={world} /> : <Undecided job={job} />;
  if (decision && newest && last && newest.plan.updated_at > decision.decided_at && newest.plan.state !== "Superseded")
    return <PlanCard job={job} view={last} world={world} />;
  if (decision && decision.target.replicas === decision.current.replicas) return <HoldCard job={job} decision={decision} />;
  return last ? <PlanCard job={job} view={last} world={world} /> : <Undecided job={job} />;
}

function Undecided({ job }: { job: JobView }) {
  if (job.finished_at) return <p class="quiet">The job ended before Brain made a decision.</p>;
  return (
    <div class="rec">
      <p class="because">No decision yet, because {job.epoch === null ? `the job is ${job.state}` : "too little was measured"}.</p>
      <p class="mut">Brain decides after about thirty steps at one size.</p>
      <AdviseOnly job={job} />
    </div>
  );
}

/** Why a person must approve each plan, and the way back. */
function AdviseOnly({ job }: { job: JobView }) {
  if (!job.advise_only || job.finished_at) return null;
  return (
    <div class="outcome advise">
      <p class="warn">Advise only: {job.advise_only}</p>
      <Button forbidden={maySteer(job)} onClick={() => askSteer(job, "lift-advise-only")}>Let Brain act…</Button>
    </div>
  );
}

function PlanCard({ job, view, world }: { job: JobView; view: PlanView; world: World | null }) {
  const { plan } = view;
  const open = ACTIVE.has(plan.state);
  const asked = plan.state === "Proposed";
  return (
    <article class="rec" aria-label={`Plan of generation ${plan.generation}`}>
      <div class="hd">
        <PlanBadge told={view} />
        <span>generation {plan.generation}, <Time at={plan.created_at} />{asked && plan.updated_at > plan.created_at && <>, renewed <Time at={plan.updated_at} /></>}</span>
        <span class="r">{asked ? <Expiry view={view} job={job} /> : plan.kind === "resize" ? `mode ${job.mode}` : plan.kind}</span>
      </div>
      <p class="because">{plan.explanation.reason}</p>
      {plan.state !== "Proposed" && <PlanTrack told={view} />}
      <div class="fromto">
        <span class="big"><Change plan={plan} open={open} /></span>
        {(resizes(plan) || plan.kind === "restart") && <span>{plan.target.replicas === 1 ? "replica" : "replicas"}</span>}
        <span class="also"><Also job={job} plan={plan} world={world} /></span>
      </div>
      {plan.outcome.detail && <p class="outcome">{plan.outcome.detail}</p>}
      <AdviseOnly job={job} />
      <Gain view={view} unit={job.unit_of_throughput} />
      <Facts plan={plan} job={job} />
      <Why explanation={asked ? plan.explanation : { ...plan.explanation, next_step: nextOf(job, plan) }} exploring={plan.promised?.exploring ?? false} />
      <Actions view={view} />
    </article>
  );
}

/** What comes after an answer to a plan: what the newest decision says, where it waits for that plan. */
function nextOf({ decision }: JobView, plan: ScalePlan): string {
  return ACTIVE.has(plan.state) && decision?.explanation.code === "plan-active" ? decision.explanation.next_step : "";
}

function Expiry({ view, job }: { view: PlanView; job: JobView }) {
  const left = (Date.parse(view.plan.expires_at) - now.value) / 1000;
  return <>mode {job.mode}<i>·</i>{left > 0 ? `expires in ${duration(left)}` : "expiring"}</>;
}

function Also({ job, plan, world }: { job: JobView; plan: ScalePlan; world: World | null }) {
  const lines: string[] = [];
  if (plan.state === "Applying") lines.push(`observed: ${count(world?.members.length ?? 0, "replica")}, world ${world?.epoch ?? "—"}`);
  else if (plan.approval) lines.push(`approved by ${plan.approval.by}, ${clock(plan.approval.at, now.value)}`);
  const groups = divided(plan.current, plan.target);
  if (groups) lines.push(groups);
  if (job.resources.gpus > 0) lines.push(`${gpusOf(plan.current)} → ${gpusOf(plan.target)} GPUs`);
  else lines.push(`${processesOf(plan.current)} → ${processesOf(plan.target)} processes`);
  return <>{lines.map((line) => <div key={line}>{line}</div>)}</>;
}

function Gain({ view: { plan, verdict }, unit }: { view: PlanView; unit: string }) {
  const { measured: before, promised: promise, outcome } = plan;
  if (!promise) return <p class="gain mut">No promise, because {plan.kind === "request" ? "the model does not know this size" : "the plan returns to a size that was measured"}.</p>;
  const share = gain(before?.examples_per_second, promise.examples_per_second);
  const [low, high] = [gain(before?.examples_per_second, promise.low), gain(before?.examples_per_second, promise.high)];
  return (
    <>
      <div class="fromto">
        <b>Throughput {change(share)}</b>
        {low !== null && high !== null && <span class="mut">90 %: {change(low).replace(/\s?%$/, "")} … {change(high)}</span>}
        <span class="also">{compared(before?.examples_per_second)} → {compared(promise.examples_per_second)}<br />{unit}<Aged at={plan.state === "Proposed" ? plan.updated_at : plan.created_at} /></span>
      </div>
      {outcome.measured ? (
        <div class="kept">
          <PromiseStrip promised={promise} measured={outcome.measured} open={plan.state === "Applied"} fellShort={missed(verdict)} width={200} />
          <b class={missed(verdict) ? "bad" : ""}>{measuredOf(outcome.measured, promise)}</b> <span class="mut">{unit}{verdict === "not applied" ? ", had it been applied" : verdict !== "not yet" && `, ${verdict}`}</span>
        </div>
      ) : before && before.examples_per_second > 0 ? <GainBar from={before.examples_per_second} to={promise} /> : null}
    </>
  );
}

function Facts({ plan, job }: { plan: ScalePlan; job: JobView }) {
  const { outcome, promised: promise, measured: before } = plan;
  const applied = outcome.downtime_seconds !== null;
  const share = gain(before?.examples_per_second, promise?.examples_per_second);
  const left = job.ends_at ? (Date.parse(job.ends_at) - now.value) / 1000 : null;
  const sooner = share !== null && left !== null && left > 0 ? left - left / (1 + share) - (plan.restart_seconds ?? 0) : null;
  return (
    <dl class="facts">
      {applied
        ? <Fact label="Downtime" value={duration(outcome.downtime_seconds)} note={`${duration(plan.restart_seconds)} assumed`} />
        : <Fact label="Restart" value={duration(plan.restart_seconds)} note="without training" />}
      {applied
        ? <Fact label="Steps redone" value={fixed(outcome.steps_redone)} note="since the safe point" />
        : <Fact label="Pays back" value={duration(plan.payback_seconds)} note="after restart" />}
      <Fact label="Promise" value={compared(promise?.examples_per_second)} note={promise ? uncertainty(promise) : "none"} />
      {sooner !== null && !applied
        ? <Fact label="Ends" value={clock(now.value + (left! - sooner) * 1000, now.value)} note={sooner >= 0 ? `${duration(sooner)} sooner` : `${duration(-sooner)} later`} />
        : <Fact label="Asked by" value={plan.proposed_by} note={plan.kind} />}
    </dl>
  );
}

function Fact({ label, value, note }: { label: string; value: string; note: string }) {
  return <div><dt>{label}</dt><dd>{value}</dd><dd>{note}</dd></div>;
}

function Why({ explanation, exploring }: { explanation: Explanation; exploring: boolean }) {
  const { confidence, evidence, alternatives, next_step: next } = explanation;
  return (
    <>
      {(evidence.length > 0 || confidence !== null) && <div class="ev">
        <h3>Why <span class="reg mut">{confidence !== null && `the promise is kept with a chance of ${percent(confidence)}`}{exploring && `${confidence !== null ? ", " : ""}exploring: this size was never measured`}</span></h3>
        <EvidenceList evidence={evidence} />
      </div>}
      {alternatives.length > 0 && (
        <div class="ev rej">
          <h3>Why not <span class="reg mut">gain, and the reason against it</span></h3>
          <ul>{alternatives.map((one) => <li key={one.replicas}><span>{count(one.replicas, "replica")}</span><b>{change(one.gain)}</b><span title={one.why_not}>{one.why_not}</span></li>)}</ul>
        </div>
      )}
      {next && <div class="ev"><h3>Next step</h3><p class="mut"><Step text={next} /></p></div>}
    </>
  );
}

function EvidenceList({ evidence }: { evidence: readonly Evidence[] }) {
  return <ul>{evidence.map(({ label, value }) => <li key={label}><span title={label}>{label}</span><b>{value}</b></li>)}</ul>;
}

/** Text in which `brain …` between backticks becomes a command to copy. */
function Step({ text }: { text: string }) {
  const command = /`(brain [^`]+)`/.exec(text)?.[1];
  return <>{text.replaceAll("`", "")}{command && <Command text={command} />}</>;
}

function Actions({ view }: { view: PlanView }) {
  const { plan, blocked, shadow } = view;
  const proposed = plan.state === "Proposed";
  const back = (plan.state === "Applied" || plan.state === "Verified") && plan.kind !== "rollback" && plan.kind !== "restart";
  const forbidden = mayDecide();
  const approve = proposed ? (forbidden ?? blocked ?? (shadow ? "mode shadow: recorded, never applied" : null)) : null;
  const reject = forbidden;
  useKeys(
    [
      ...(proposed && !approve ? [{ keys: "a", does: "approve the plan", run: () => askAbout(view, "approve") }] : []),
      ...(proposed && !reject ? [{ keys: "r", does: "reject the plan", run: () => askAbout(view, "reject") }] : []),
      { keys: "w", does: "what-if: other sizes", run: whatIf },
    ],
    [plan.generation, plan.version, approve, reject],
  );
  const label = changeOf(plan);
  if (!proposed && !back) return null;
  return (
    <>
      <div class="acts stick">
        {proposed ? (
          <>
            <Button kind="pri" keys="A" forbidden={approve} onClick={() => askAbout(view, "approve")}>Approve {label}</Button>
            <Button keys="R" forbidden={reject} onClick={() => askAbout(view, "reject")}>Reject…</Button>
            <Button keys="W" onClick={whatIf}>What-if</Button>
          </>
        ) : (
          <Button forbidden={forbidden} onClick={() => askAbout(view, "rollback")}>Roll back {wayBack(plan)}…</Button>
        )}
      </div>
      {approve && <p class="cap12">{approve}</p>}
    </>
  );
}

/** Goes to the curve, which answers for every size above itself: both are in sight. */
export function whatIf(): void {
  const target = document.getElementById("what-if");
  target?.scrollIntoView({ block: "start" });
  target?.focus();
}

function HoldCard({ job, decision }: { job: JobView; decision: Recommendation }) {
  const { explanation, current, measured, predicted } = decision;
  // Of the last minute there is one number on a page.
  const fresh = job.throughput !== null && now.value - Date.parse(decision.decided_at) <= 60_000;
  useKeys([{ keys: "w", does: "what-if: other sizes", run: whatIf }], []);
  return (
    <article class="rec" aria-label="Hold">
      <div class="hd">
        <HoldBadge />
        <span>decided <Time at={decision.decided_at} /></span>
        <span class="r">mode {job.mode}</span>
      </div>
      <p class="because">{explanation.reason}</p>
      <div class="fromto">
        <span class="big">{current.replicas} <span class="arr">→</span> {current.replicas}</span>
        <span>{current.replicas === 1 ? "replica" : "replicas"}</span>
        <span class="also">
          <div>measured {promised(fresh ? job.throughput : measured)}<Aged at={decision.decided_at} /></div>
          {predicted && <div>predicted {promised(predicted)}</div>}
        </span>
      </div>
      <AdviseOnly job={job} />
      <Why explanation={explanation} exploring={predicted?.exploring ?? false} />
      <div class="acts"><Button keys="W" onClick={whatIf}>What-if</Button></div>
    </article>
  );
}
