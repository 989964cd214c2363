/** What deviates, most urgent first; pure. Everything here is read, nothing is guessed. */
import type { Condition, Health, JobView, NodeView, PlanView, Recommendation } from "../api/types.ts";
import { clock, compared, count, duration, gain, promised, SPACE, words } from "./format.ts";
import { missed, type Told } from "./verdicts.ts";

export interface Concern {
  /** Lower is more urgent. */
  rank: number;
  icon: "warning" | "holding" | "failed" | "proposed" | "silent" | "drained" | "clock" | "hold";
  tone: "warn" | "bad" | "brain" | "mut";
  title: string;
  detail: string;
  at: string | null;
  to: readonly string[];
  /** Ids of the jobs, or names of the nodes, that it is about. */
  jobs?: readonly string[];
  nodes?: readonly string[];
}

/** Concerns that need a look; what only waits its turn needs none. */
export const pressing = (found: readonly Concern[]): Concern[] => found.filter(({ tone }) => tone === "warn" || tone === "bad");

/** How many jobs and nodes pressing concerns are about, each once. */
export function about(found: readonly Concern[]): { jobs: number; nodes: number } {
  const different = (ids: (one: Concern) => readonly string[] | undefined): number => new Set(pressing(found).flatMap((one) => ids(one) ?? [])).size;
  return { jobs: different((one) => one.jobs), nodes: different((one) => one.nodes) };
}

/** How a job is addressed: by its name where that says which one it is, else by its id. */
export const address = (job: JobView): string =>
  job.finished_at || job.project !== "default" ? job.id : job.name;

/** Failures older than this are history, not news. */
const NEWS = 24 * 3_600_000;

/** Codes of holds that only a person can end. */
const MENDABLE = new Set(["no-checkpoint", "not-distributed"]);

/** What only a person can mend of a cluster's object. */
const CLUSTER = ["NeverFits", "QuotaExceeded", "ImageCannotBePulled", "ForbiddenByCluster", "ManagedElsewhere", "RefusedByBrain", "Invalid"];
/** Conditions that somebody should look at; holding, advice and freezes are said elsewhere. */
const NOTABLE = new Set(["Hung", "Late", "Straggler", "StaleTelemetry", "Undecided", "StorageBehind", ...CLUSTER]);
const ICONS: Record<string, Concern["icon"]> = { StaleTelemetry: "holding", Late: "clock" };
const notable = (job: JobView): Condition[] => job.conditions.filter(({ kind }) => NOTABLE.has(kind));

export function concerns(
  jobs: readonly JobView[], waiting: readonly PlanView[], nodes: readonly NodeView[], health: Health | null, now: number,
): Concern[] {
  return [
    ...alike(failures(jobs, now)).map(aboutFailures),
    ...jobs.filter((job) => !job.finished_at).flatMap(aboutJob),
    ...aboutPlans(waiting, now),
    ...nodes.flatMap(aboutNode),
    ...(health?.degraded ?? []).map((said): Concern => ({
      rank: 0, icon: "silent", tone: "warn", title: "The service is degraded", detail: said, at: null, to: ["health"],
    })),
  ].sort((one, other) => one.rank - other.rank);
}

export interface Failed {
  /** The newest of its name. */
  job: JobView;
  /** How many of that name failed lately. */
  times: number;
}

/** Jobs that failed in the last day and were not tried again since, one for each name. */
export function failures(jobs: readonly JobView[], now: number): Failed[] {
  const lately = (job: JobView): boolean => job.state === "Failed" && now - Date.parse(job.updated_at) < NEWS;
  const names = new Map<string, JobView[]>();
  for (const job of jobs) {
    const name = `${job.project}/${job.name}`;
    names.set(name, [...(names.get(name) ?? []), job]);
  }
  return [...names.values()].flatMap((runs) => {
    const newest = runs.reduce((one, other) => (other.created_at > one.created_at ? other : one));
    return lately(newest) ? [{ job: newest, times: runs.filter(lately).length }] : [];
  });
}

/** Failures that read alike but for where and when they happened, the newest first. */
function alike(failed: readonly Failed[]): [Failed, ...Failed[]][] {
  const found = new Map<string, [Failed, ...Failed[]]>();
  for (const one of [...failed].sort((one, other) => other.job.updated_at.localeCompare(one.job.updated_at))) {
    const reason = one.job.reason.replace(/\b(rank|replica|step|world) \d+/g, "$1");
    const others = found.get(reason);
    if (others) others.push(one);
    else found.set(reason, [one]);
  }
  return [...found.values()];
}

function aboutFailures(failed: [Failed, ...Failed[]]): Concern {
  const [{ job, times }, ...others] = failed;
  const again = times > 1 ? ` ${times} times` : "";
  const names = others.slice(0, 3).map((one) => one.job.name).join(", ");
  const more = others.length > 3 ? ` and ${others.length - 3} more` : "";
  return {
    rank: 1, icon: "failed", tone: "bad", at: job.updated_at, jobs: failed.map((one) => one.job.id),
    title: others.length > 0 ? `${failed.length} jobs failed for the same reason` : `${job.name} failed${again}`,
    detail: others.length > 0 ? `${job.name}, ${names}${more}: ${job.reason}` : job.reason,
    to: others.length > 0 ? ["jobs"] : ["jobs", address(job)],
  };
}

function aboutJob(job: JobView): Concern[] {
  const base = { at: job.updated_at, to: ["jobs", address(job)], jobs: [job.id] };
  // A condition has no time of its own, and the job's may be that of another change.
  const found: Concern[] = notable(job).map(({ kind, reason }) => ({
    ...base, at: null, rank: kind === "Hung" ? 0 : 2, icon: ICONS[kind] ?? "warning", tone: "warn", title: conditionTitle(job, kind), detail: reason,
  }));
  if (job.state === "Degraded")
    found.push({ ...base, rank: 1, icon: "warning", tone: "warn", title: `${job.name} is degraded`, detail: job.reason });
  if (job.advise_only)
    found.push({ ...base, rank: 3, icon: "hold", tone: "warn", title: `Brain only advises on ${job.name}`, detail: job.advise_only });
  const hold = job.decision?.explanation;
  if (hold && MENDABLE.has(hold.code) && !job.advise_only)
    found.push({ ...base, at: job.decision?.decided_at ?? null, rank: 4, icon: "hold", tone: "warn", title: `${job.name} cannot be resized`, detail: `${hold.reason.replace(/\.$/, "")}. ${hold.next_step}` });
  if (job.state === "Queued")
    found.push({ ...base, at: job.created_at, rank: 5, icon: "clock", tone: "mut", title: `${job.name} waits to start`, detail: job.reason });
  if (job.losses.dropped + job.losses.gaps > 0)
    found.push({ ...base, rank: 6, icon: "silent", tone: "warn", title: `${job.name} lost samples`, detail: `${count(job.losses.dropped, "sample")} dropped before they were sent, ${count(job.losses.gaps, "other sample")} missing.` });
  return found;
}

function conditionTitle(job: JobView, kind: string): string {
  if (kind === "Hung") return `${job.name} hangs`;
  if (kind === "Late") return `${job.name} will miss its deadline`;
  if (kind === "Undecided") return `Brain cannot decide about ${job.name}`;
  if (kind === "Straggler") return `${job.name} has a straggler`;
  return kind === "StaleTelemetry" ? `${job.name} sends no samples` : `${job.name}: ${words(kind)}`;
}

function aboutPlans(waiting: readonly PlanView[], now: number): Concern[] {
  if (waiting.length === 0) return [];
  const first = [...waiting].sort((one, other) => Date.parse(one.plan.expires_at) - Date.parse(other.plan.expires_at))[0];
  const names = [...new Set(waiting.map((view) => view.job_name))].join(", ");
  const one = waiting.length === 1 ? waiting[0] : undefined;
  return [{
    rank: 2, icon: "proposed", tone: "brain",
    title: `${count(waiting.length, "recommendation")} ${waiting.length === 1 ? "waits" : "wait"} for you`,
    detail: `${names}; ${waiting.length === 1 ? "expires" : "first expires"} ${clock(first?.plan.expires_at, now)}.`,
    at: first?.plan.created_at ?? null,
    to: one ? ["jobs", one.plan.job] : ["inbox"],
  }];
}

function aboutNode(node: NodeView): Concern[] {
  const nodes = [node.name];
  if (!node.ready)
    return [{ rank: 1, icon: "silent", tone: "warn", title: `${node.name} is silent`, detail: node.jobs.length === 0 ? "The node's scaler does not report. No job of Brain runs on the node." : `The node's scaler does not report. ${count(node.jobs.length, "job")} on the node ${node.jobs.length === 1 ? "continues" : "continue"}, and Brain makes no changes.`, at: node.seen_at, to: ["nodes"], nodes }];
  if (node.left.length)
    return [{ rank: 3, icon: "warning", tone: "warn", title: `${node.name} was left by ${node.left.map((one) => one.job_name).join(", ")}`, detail: node.left.map((one) => one.why).join("; "), at: null, to: ["nodes"], nodes }];
  if (!node.schedulable)
    return [{ rank: 7, icon: "drained", tone: "mut", title: `${node.name} is drained`, detail: "No new replicas start on the node.", at: null, to: ["nodes"] }];
  return [];
}

/** Whether a decision is a hold of its own; one that only waits for a plan is told by that plan. */
export const holding = (decision: Recommendation | null): decision is Recommendation =>
  decision !== null && decision.target.replicas === decision.current.replicas && decision.explanation.code !== "plan-active";

/** Whether a job is outside what a person expects of it. */
function unusual(job: JobView): boolean {
  return job.state === "Degraded" || notable(job).length > 0 || job.advise_only !== null;
}

const ORDER: Record<JobView["state"], number> = {
  Degraded: 1, Changing: 2, Starting: 3, Running: 4, Queued: 5, Suspended: 6, Failed: 7, Succeeded: 8, Cancelled: 9,
};

/** Hung before unusual before usual, ended last; newest first among equals. */
export function byUrgency(one: JobView, other: JobView): number {
  const rank = (job: JobView): number =>
    job.conditions.some(({ kind }) => kind === "Hung") ? -1 : unusual(job) && !job.finished_at ? 0 : ORDER[job.state];
  return rank(one) - rank(other) || other.created_at.localeCompare(one.created_at);
}

/** What the end of a decision's row says: the result against the promise, else where it stands. */
export function result({ plan, verdict }: Told, now: number): { text: string; tone: "brain" | "bad" | "mut" | "" } {
  const off = gain(plan.promised?.examples_per_second, plan.outcome.measured?.examples_per_second);
  const more = gain(plan.measured?.examples_per_second, plan.promised?.examples_per_second);
  const text = (share: number | null, decimals = 0): string =>
    share === null ? "—" : `${share < 0 ? "−" : "+"}${Math.abs(share * 100).toFixed(decimals)}${SPACE}%`;
  switch (plan.state) {
    case "Proposed":
    case "Approved":
      return more === null ? { text: "no promise", tone: "mut" } : { text: `${text(more)} promised`, tone: "brain" };
    case "Applying":
      return { text: "re-forming", tone: "mut" };
    case "Applied":
      return { text: `measuring ${duration((now - Date.parse(plan.updated_at)) / 1000)}`, tone: "mut" };
    case "Verified":
    case "RolledBack":
      return off === null
        ? { text: plan.outcome.measured ? compared(plan.outcome.measured.examples_per_second) : "not measured", tone: "mut" }
        : { text: text(off, 1), tone: missed(verdict) ? "bad" : "" };
    default:
      // Advice that was not taken, held against what was measured later.
      if (off !== null) return { text: `${text(off, 1)} had it been`, tone: "mut" };
      return { text: plan.promised ? promised(plan.promised) : "—", tone: "mut" };
  }
}
