/** Icon and word together, always. */
import type { ComponentChildren } from "preact";
import type { JobState, JobView, NodeView, PlanState, PlanVerdict, ScalePlan } from "../api/types.ts";
import { changeOf, resizes, standing, type Told } from "../words/verdicts.ts";
import { FromTo } from "./parts.tsx";
import { Icon, type IconName, type Tone } from "./icons.tsx";

interface Look {
  icon: IconName;
  tone: Tone;
  word: string;
}

const JOBS: Record<JobState, Look> = {
  Queued: { icon: "queued", tone: "mut", word: "Queued" },
  Starting: { icon: "starting", tone: "mut", word: "Starting" },
  Running: { icon: "running", tone: "mut", word: "Running" },
  Changing: { icon: "changing", tone: "brain", word: "Changing" },
  Degraded: { icon: "warning", tone: "warn", word: "Degraded" },
  Suspended: { icon: "holding", tone: "mut", word: "Suspended" },
  Succeeded: { icon: "ended", tone: "mut", word: "Succeeded" },
  Failed: { icon: "failed", tone: "bad", word: "Failed" },
  Cancelled: { icon: "cancelled", tone: "mut", word: "Cancelled" },
};

const PLANS: Record<PlanState | "Hold", Look> = {
  Proposed: { icon: "proposed", tone: "brain", word: "Proposed" },
  Approved: { icon: "approved", tone: "brain", word: "Approved" },
  Applying: { icon: "applying", tone: "brain", word: "Applying" },
  Applied: { icon: "applied", tone: "brain", word: "Applied" },
  Verified: { icon: "verified", tone: "mut", word: "Verified" },
  RolledBack: { icon: "rolled-back", tone: "mut", word: "Rolled back" },
  Rejected: { icon: "rejected", tone: "mut", word: "Rejected" },
  Superseded: { icon: "superseded", tone: "mut", word: "Superseded" },
  Expired: { icon: "expired", tone: "mut", word: "Expired" },
  Failed: { icon: "plan-failed", tone: "bad", word: "Failed" },
  Hold: { icon: "hold", tone: "mut", word: "Hold" },
};

/** What came of a promise; it is shown instead of the state once there is something to say. */
const VERDICTS: Partial<Record<PlanVerdict, Look>> = {
  kept: { icon: "verified", tone: "good", word: "Kept" },
  "fell short": { icon: "fell-short", tone: "bad", word: "Fell short" },
  "rolled back": { icon: "rolled-back", tone: "bad", word: "Rolled back" },
  inconclusive: { icon: "inconclusive", tone: "mut", word: "Inconclusive" },
  restored: { icon: "rolled-back", tone: "mut", word: "Restored" },
};

/** Conditions that are shown instead of the state they stand beside. */
const REASONS: Record<string, Look> = {
  Hung: { icon: "warning", tone: "bad", word: "Hung" },
  Late: { icon: "clock", tone: "warn", word: "Late" },
  Straggler: { icon: "warning", tone: "warn", word: "Straggler" },
  StaleTelemetry: { icon: "holding", tone: "warn", word: "Holding" },
};

export function jobLook(job: JobView): Look {
  if (job.state !== "Running" && job.state !== "Degraded") return JOBS[job.state];
  const told = job.conditions.find((condition) => REASONS[condition.kind]);
  return (told && REASONS[told.kind]) ?? JOBS[job.state];
}

/** How a state looks, whatever came of the promise. */
export const stateLook = (state: PlanState | "Hold"): Look => PLANS[state];
export const verdictLook = (verdict: PlanVerdict): Look | undefined => VERDICTS[verdict];
export const planLook = ({ plan, verdict }: Told): Look => VERDICTS[verdict] ?? PLANS[plan.state];

function Badge({ look, children }: { look: Look; children?: ComponentChildren }) {
  return (
    <span class="badge">
      <Icon name={look.icon} tone={look.tone} />
      {children ?? look.word}
    </span>
  );
}

export function JobBadge({ job }: { job: JobView }) {
  return <Badge look={jobLook(job)} />;
}

export function PlanBadge({ told, children }: { told: Told; children?: ComponentChildren }) {
  return <Badge look={planLook(told)}>{children}</Badge>;
}

/** A plan's sizes, or what else it changes if its size stays. */
export function Change({ plan, open }: { plan: ScalePlan; open?: boolean }) {
  if (resizes(plan)) return <FromTo from={plan.current.replicas} to={plan.target.replicas} open={open ?? true} />;
  return <span class="clip" title={changeOf(plan)}>{changeOf(plan)}</span>;
}

/** Below the figure of a missed promise: the size that it left. */
export function Standing({ told }: { told: Told }) {
  const left = standing(told);
  return left ? <div class="left">{left}</div> : null;
}

export function HoldBadge({ children }: { children?: ComponentChildren }) {
  return <Badge look={PLANS.Hold}>{children}</Badge>;
}

export function NodeBadge({ node }: { node: NodeView }) {
  if (!node.ready) return <Badge look={{ icon: "silent", tone: "warn", word: "Silent" }} />;
  if (!node.schedulable) return <Badge look={{ icon: "drained", tone: "mut", word: "Drained" }} />;
  if (node.left.length) return <Badge look={{ icon: "warning", tone: "warn", word: "Left" }} />;
  return <Badge look={{ icon: "ready", tone: "mut", word: "Ready" }} />;
}
