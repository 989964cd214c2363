/** What every page needs: jobs, plans, nodes and freezes, loaded once and kept by what is told. */
import { computed, signal } from "@preact/signals";
import * as calls from "../api/calls.ts";
import type { JobView, PlanView } from "../api/types.ts";
import { address } from "../words/attention.ts";
import { byExpiry, mayWait } from "../words/proposals.ts";
import { type Change, merged, ToldMeanwhile } from "../words/rows.ts";
import { onRows } from "./link.ts";
import { Resource } from "./resource.ts";
import { link } from "./route.ts";
import { health, refreshHealth } from "./session.ts";

/** The newest jobs, and the newest plans, that are kept here; `brain jobs` and `brain plans` list all. */
export const MOST = 2000;

/** When the newest known sample was measured, milliseconds; 0 before any. */
export const sampledAt = signal(0);

const told = new ToldMeanwhile();

export const jobs = new Resource(() => told.into(allJobs), { concerns: () => false });
/** What happens to a job says whether its proposal can be approved, and nothing of other plans. */
export const plans: Resource<PlanView[]> = new Resource(newestPlans, {
  concerns: ({ kind, job }) => /^(plan\.|row\.plan$)/.test(kind) || (kind.startsWith("job.") && proposed().some(({ plan }) => plan.job === job)),
});
export const nodes = new Resource(async () => (await calls.nodes()).items, { concerns: ({ kind }) => kind === "list.nodes" });
export const freezes = new Resource(async () => (await calls.freezes()).items, {
  concerns: ({ kind }) => /freeze|thaw/.test(kind),
});
/**
 * Costs the service more than a list; the overview starts it while it is open. Savings grow while nothing happens that
 * could be told, so time asks for them, five minutes of it: they are sums of a day, and say how old they are.
 */
export const savings = new Resource(calls.savings, {
  every: 300,
  quiet: 15,
  concerns: ({ kind }) => /^plan\./.test(kind),
});
const doctor = new Resource(refreshHealth, { concerns: ({ kind }) => kind === "list.health" });

export function startFleet(): () => void {
  const stops = [jobs, plans, nodes, freezes, doctor].map((resource) => resource.start());
  stops.push(onRows((changes) => {
    told.add(changes);
    sample(changes);
    jobs.change((rows) => merged(rows, changes).slice(0, MOST));
  }));
  return () => stops.forEach((stop) => stop());
}

/** Plans that a person is asked about: proposed, approvable, and the mode leaves it to people; the first to expire comes first. */
export const waiting = computed(() => proposed().filter(({ shadow }) => !shadow).sort(byExpiry));

function proposed(): PlanView[] {
  return (plans.value ?? []).filter(({ plan }) => plan.state === "Proposed");
}

export const frozen = computed(() => (freezes.value ?? []).find((freeze) => freeze.scope === "all"));

export const place = computed(() => health.value?.pools[0] ?? "local");

/** Address of a job of which only the id or the name is known. */
export function jobAddress(idOrName: string): string {
  const known = (jobs.value ?? []).find((job) => job.id === idOrName || (!job.finished_at && job.name === idOrName));
  return known ? address(known) : idOrName;
}

export const jobLink = (idOrName: string): string => link("jobs", jobAddress(idOrName));

/** What a job is called whose address may be its id. */
export const nameOf = (address: string): string => (jobs.value ?? []).find((job) => job.id === address)?.name ?? address;

/** The newest plans, back to those that cannot wait any more: a large fleet makes hundreds in that time. */
async function newestPlans(): Promise<PlanView[]> {
  const found: PlanView[] = [];
  let token = "";
  do {
    const page = await calls.plans(token);
    found.push(...page.items);
    token = mayWait(page.items, Date.now()) ? page.next_page_token ?? "" : "";
  } while (token && found.length < MOST);
  return found;
}

async function allJobs(): Promise<JobView[]> {
  const found = await calls.every(calls.jobs, MOST);
  sample(found);
  return found;
}

function sample(rows: readonly Change[]): void {
  const ages = rows.flatMap(({ telemetry_age_seconds: age }) => age ?? []);
  sampledAt.value = Math.max(sampledAt.peek(), Date.now() - 1000 * Math.min(...ages));
}
