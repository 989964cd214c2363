/** The operations that the dashboard uses; the mirror of `brain/calls.py`. */
import { get, post, remove, send } from "./http.ts";
import type {
  AuditEntry, BrainEvent, Freeze, Health, JobDetail, JobView, ModelView, NodeView, Page, PlanView, PoolView, Savings, Scaling,
  Series, WorkerView,
} from "./types.ts";

export type Verdict = "approve" | "reject" | "rollback";
export type Steering = "cancel" | "suspend" | "resume" | "lift-advise-only";

const name = encodeURIComponent;

/** The items of all pages of a list, until there are `most`. */
export async function every<T>(read: (page: string) => Promise<Page<T>>, most = Infinity): Promise<T[]> {
  const found: T[] = [];
  let token = "";
  do {
    const page = await read(token);
    found.push(...page.items);
    token = page.next_page_token ?? "";
  } while (token && found.length < most);
  return found;
}

export const health = (): Promise<Health> => get("/health");
export const signIn = (code: string): Promise<unknown> => post("/sign-in", { code });

export const jobs = (page = ""): Promise<Page<JobView>> => get("/jobs", { page_token: page, page_size: 500 });
export const job = (id: string): Promise<JobDetail> => get(`/jobs/${name(id)}`);
export const steer = (id: string, verb: Steering): Promise<JobView> =>
  post(`/jobs/${name(id)}:${verb}`, {});
export const scaling = (id: string): Promise<Scaling> => get(`/jobs/${name(id)}/what-if`);
export const model = (id: string): Promise<ModelView> => get(`/jobs/${name(id)}/model`);
export const workers = (id: string): Promise<Page<WorkerView>> => get(`/jobs/${name(id)}/workers`);
export const jobEvents = (id: string): Promise<Page<BrainEvent>> => get(`/jobs/${name(id)}/events`);
export const series = (id: string, metric: string, since: Date, until: Date, width: number): Promise<Series> =>
  get(`/jobs/${name(id)}/series`, {
    metric, since: since.toISOString(), until: until.toISOString(), width,
  });
export const logs = (id: string, replica: string, follow: boolean, signal: AbortSignal): Promise<Response> =>
  send(`/jobs/${name(id)}/logs`, { replica, follow: String(follow), heartbeat: String(follow) }, { signal });

export const plans = (page = ""): Promise<Page<PlanView>> => get("/plans", { page_token: page, page_size: 200 });
export const plansOf = (id: string, page = ""): Promise<Page<PlanView>> => get(`/jobs/${name(id)}/plans`, { page_token: page });
export const plan = (id: string, generation: number): Promise<PlanView> => get(`/jobs/${name(id)}/plans/${generation}`);
export const resize = (id: string, replicas: number, why: string): Promise<PlanView> =>
  post(`/jobs/${name(id)}/plans`, { replicas, why });
export const decide = (
  id: string, generation: number, verdict: Verdict, version: number, why: string,
): Promise<PlanView> => post(`/plans/${name(id)}/${generation}:${verdict}`, { version, why });

export const savings = (): Promise<Savings> => get("/savings");
export const nodes = (): Promise<Page<NodeView>> => get("/nodes");
export const pool = (named: string): Promise<PoolView> => get(`/pools/${name(named)}`);
export const audit = (page = ""): Promise<Page<AuditEntry>> =>
  get("/audit", { page_token: page, page_size: 100 });
export const freezes = (): Promise<Page<Freeze>> => get("/freeze");
export const freeze = (scope: Freeze["scope"], target: string, why: string): Promise<Page<Freeze>> =>
  post("/freeze", { scope, target, why });
export const thaw = (scope: Freeze["scope"], target: string): Promise<Page<Freeze>> =>
  remove(`/freeze/${scope}${target ? `/${name(target)}` : ""}`);
