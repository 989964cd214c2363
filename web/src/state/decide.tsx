/** Questions about plans and jobs, as dialogs ask them. */
import * as calls from "../api/calls.ts";
import type { JobView, PlanView } from "../api/types.ts";
import { ask, type Question } from "../ui/ask.tsx";
import { Aged, FromTo } from "../ui/parts.tsx";
import { change, compared, count, duration, gain, promised } from "../words/format.ts";
import { changeOf, resizes, wayBack } from "../words/verdicts.ts";
import { freezes, frozen, plans } from "./fleet.ts";

const VERBS: Record<calls.Verdict, { title: string; confirm: string; done: string }> = {
  approve: { title: "Approve", confirm: "Approve", done: "Approved" },
  reject: { title: "Reject", confirm: "Reject", done: "Rejected" },
  rollback: { title: "Roll back", confirm: "Roll back", done: "Rolling back" },
};

export function askAbout(view: PlanView, verdict: calls.Verdict): void {
  ask(about(view, verdict));
}

function about(view: PlanView, verdict: calls.Verdict): Question {
  const { plan, job_name: name } = view;
  const verb = VERBS[verdict];
  const label = verdict === "rollback" ? wayBack(plan) : changeOf(plan);
  return {
    title: `${verb.title} ${label} ${resizes(plan) ? "replicas " : ""}of ${name}?`,
    detail: <Consequence view={view} verdict={verdict} />,
    confirm: `${verb.confirm} ${label}`,
    why: verdict === "approve" ? "no" : "first",
    run: async (why) => {
      await calls.decide(plan.job, plan.generation, verdict, plan.version, why);
      await plans.refresh();
      return `${verb.done}: generation ${plan.generation} of ${name}, ${label}.`;
    },
    changed: async () => {
      const now = await calls.plan(plan.job, plan.generation);
      void plans.refresh();
      return { told: difference(view, now), again: undecided(now, verdict) ? about(now, verdict) : null };
    },
  };
}

function undecided({ plan }: PlanView, verdict: calls.Verdict): boolean {
  if (verdict === "rollback") return plan.state === "Applied" || plan.state === "Verified";
  return plan.state === "Proposed" || (verdict === "reject" && plan.state === "Approved");
}

/** What changed between what was seen and what is. */
function difference(seen: PlanView, now: PlanView): string {
  const [was, is] = [seen.plan, now.plan];
  const told: string[] = [];
  if (was.state !== is.state) told.push(`${was.state} → ${is.state}${is.approval ? ` by ${is.approval.by}` : ""}`);
  if (was.target.replicas !== is.target.replicas) told.push(`target ${was.target.replicas} → ${is.target.replicas}`);
  const promise = [promised(was.promised), promised(is.promised)];
  if (promise[0] !== promise[1]) told.push(`promise ${promise.join(" → ")}`);
  const measured = [promised(was.measured), promised(is.measured)];
  if (measured[0] !== measured[1]) told.push(`measured ${measured.join(" → ")}`);
  if (is.outcome.detail && is.outcome.detail !== was.outcome.detail) told.push(is.outcome.detail);
  if (now.blocked && now.blocked !== seen.blocked) told.push(now.blocked);
  return `Since you saw it: ${told.join("; ") || `version ${was.version} → ${is.version}`}.`;
}

function Consequence({ view: { plan, blocked }, verdict }: { view: PlanView; verdict: calls.Verdict }) {
  const more = gain(plan.measured?.examples_per_second, plan.promised?.examples_per_second);
  return (
    <>
      <p class="big">{!resizes(plan) ? (verdict === "rollback" ? wayBack(plan) : changeOf(plan)) : <FromTo from={verdict === "rollback" ? plan.target.replicas : plan.current.replicas} to={verdict === "rollback" ? plan.current.replicas : plan.target.replicas} />}{(resizes(plan) || plan.kind === "restart") && <small> replicas</small>}</p>
      <p>{plan.explanation.reason}</p>
      {verdict === "approve" && (
        <p class="mut">
          Promised {change(more)} throughput ({compared(plan.measured?.examples_per_second)} → {promised(plan.promised)}<Aged at={plan.updated_at} />); training stops for about {duration(plan.restart_seconds)}, at the next safe point.
        </p>
      )}
      {verdict === "reject" && <p class="mut">Nothing changes; Brain decides again in its next turn.</p>}
      {verdict === "rollback" && <p class="mut">A new plan restores the previous size at the next safe point.</p>}
      {blocked && <p class="warn">{blocked}</p>}
    </>
  );
}

const STEER: Record<calls.Steering, { verb: string; confirm?: string; detail: string; done: string }> = {
  cancel: { verb: "Cancel", detail: "The job ends for good; its checkpoints stay where they are.", done: "will be cancelled" },
  suspend: { verb: "Suspend", detail: "The job stops at its next safe point and frees its resources. Once resumed, it continues from there.", done: "will be suspended" },
  resume: { verb: "Resume", detail: "The job continues from its newest checkpoint as soon as the pool has room.", done: "will resume" },
  "lift-advise-only": { verb: "Let Brain act on", confirm: "Let Brain act", detail: "Brain approves its own plans again, as the job's mode says, and counts rollbacks from zero.", done: "is no longer advise-only" },
};

export function askSteer(job: JobView, verb: calls.Steering): void {
  const words = STEER[verb];
  ask({
    title: `${words.verb} ${job.name}?`,
    detail: <p>{words.detail}</p>,
    confirm: words.confirm ?? words.verb,
    why: "no",
    run: async () => {
      await calls.steer(job.id, verb);
      return `${job.name} ${words.done}.`;
    },
  });
}

export function askSize(job: JobView, replicas: number): void {
  ask({
    title: `Ask for ${count(replicas, "replica")} of ${job.name}?`,
    detail: (
      <>
        <p class="big"><FromTo from={job.replicas} to={replicas} /> <small>replicas</small></p>
        <p class="mut">Brain stores a plan, approves it as the mode {job.mode} says, and changes the world at the next safe point.</p>
      </>
    ),
    confirm: `Ask for ${replicas}`,
    why: "optional",
    run: async (why) => {
      const { plan } = await calls.resize(job.id, replicas, why);
      await plans.refresh();
      return `Generation ${plan.generation} of ${job.name}: ${changeOf(plan)}, ${plan.state}.`;
    },
  });
}

export function askFreeze(): void {
  const standing = frozen.value;
  ask({
    title: standing ? "Thaw everything?" : "Freeze everything?",
    detail: standing ? (
      <p>Frozen by {standing.by}{standing.why && `: ${standing.why}`}. Approved plans are applied again after thawing.</p>
    ) : (
      <p>No plan is applied until someone thaws. Jobs keep training and healing; Brain keeps measuring and proposing.</p>
    ),
    confirm: standing ? "Thaw" : "Freeze",
    why: standing ? "no" : "first",
    run: async (why) => {
      await (standing ? calls.thaw("all", "") : calls.freeze("all", "", why));
      await freezes.refresh();
      return standing ? "Thawed: plans are applied again." : "Frozen: no plan is applied.";
    },
  });
}
