/** The shapes of `brain/views.py` and `brain/types/`, as the API's JSON has them. */

export type JobState =
  | "Queued" | "Starting" | "Running" | "Changing" | "Degraded" | "Suspended"
  | "Succeeded" | "Failed" | "Cancelled";
export type PlanState =
  | "Proposed" | "Approved" | "Applying" | "Applied" | "Verified" | "RolledBack"
  | "Rejected" | "Superseded" | "Expired" | "Failed";
export type PolicyMode = "off" | "shadow" | "approve" | "auto";
export type Role = "viewer" | "submitter" | "operator" | "admin" | "scaler" | "agent";

export interface Page<T> { items: T[]; next_page_token: string | null }
export interface Resources { cpu_millis: number; memory_bytes: number; gpus: number }
export interface Allocation { replicas: number; processes_per_replica: number; resources: Resources }
export interface Prediction { examples_per_second: number; low: number; high: number; exploring: boolean }
export interface Evidence { label: string; value: string }
export interface Alternative { replicas: number; gain: number | null; why_not: string }
export interface Explanation {
  code: string; reason: string; evidence: Evidence[]; alternatives: Alternative[];
  confidence: number | null; next_step: string;
}
export interface Recommendation {
  current: Allocation; target: Allocation; measured: Prediction | null; predicted: Prediction | null;
  restart_seconds: number | null; payback_seconds: number | null; explanation: Explanation; decided_at: string;
}
export interface Outcome {
  epoch: number | null; downtime_seconds: number | null; steps_redone: number | null;
  measured: Prediction | null; verdict: "kept" | "fell short" | "inconclusive" | null; detail: string;
}
export interface ScalePlan {
  job: string; generation: number; kind: "resize" | "request" | "rollback" | "restore"; state: PlanState;
  current: Allocation; target: Allocation; measured: Prediction | null; promised: Prediction | null;
  restart_seconds: number | null; payback_seconds: number | null; explanation: Explanation;
  proposed_by: string; approval: { by: string; at: string } | null; outcome: Outcome;
  created_at: string; updated_at: string; expires_at: string; version: number;
}
export interface PlanView { job_name: string; plan: ScalePlan; blocked: string | null; shadow: boolean }
export interface Condition { kind: string; reason: string }
export interface Losses { gaps: number; dropped: number }
export interface JobView {
  id: string; name: string; project: string; owner: string; pool: string; state: JobState; reason: string;
  conditions: Condition[]; intent: "run" | "suspend" | "cancel"; mode: PolicyMode;
  optimize_mode: "manual" | "single-job" | "cluster"; advise_only: string | null; failures: number;
  exit_code: number | null; created_at: string; updated_at: string; finished_at: string | null; version: number;
  replicas_min: number; replicas_max: number; unit: number; replicas: number; replicas_wished: number;
  processes_per_replica: number; resources: Resources; epoch: number | null; generation: number;
  unit_of_throughput: string; throughput: Prediction | null; promised: Prediction | null;
  data_wait_share: number | null; cpu_share: number | null; memory_share: number | null; gpu_share: number | null;
  step: number | null; progress: number | null; ends_at: string | null; telemetry_age_seconds: number | null;
  losses: Losses; sparkline: (number | null)[]; plan: ScalePlan | null; decision: Recommendation | null;
}
export interface Member { replica: number; group_rank: number; processes: number; node: string; address: string }
export interface World {
  job: string; epoch: number; generation: number; cause: "start" | "plan" | "failure" | "membership" | "revert";
  members: Member[]; formed_at: string; stepping_at: string | null; ended_at: string | null;
  downtime_seconds: number | null; steps_redone: number | null; detail: string;
}
export interface Replica {
  id: number; role: string; node: string; state: "starting" | "running" | "exited"; generation: number;
  started_at: string; ended_at: string | null; exit: string | null; exit_code: number | null; detail: string;
}
export interface JobDetail { job: JobView; document: Record<string, unknown>; world: World | null; worlds: World[]; replicas: Replica[] }
export interface WhatIf { replicas: number; prediction: Prediction | null; undetermined: string | null; measured: Prediction | null }
export interface Scaling { current: number; recommended: number; sizes: WhatIf[]; basis: string }
export interface SeriesPoint { at: string; mean: number; low: number; high: number }
export interface Series { metric: string; unit: string; since: string; until: string; points: SeriesPoint[] }
export interface WorkerView {
  rank: number; replica: number; local_rank: number; node: string; step_seconds: number; deviation: number; straggler: boolean;
}
export interface NodeView {
  name: string; pool: string; accelerator: string; capacity: Resources; reserved: Resources; slots: number | null;
  seen_at: string; ready: boolean; schedulable: boolean; jobs: string[];
}
export interface BrainEvent {
  id: number; at: string; kind: string; job: string | null; subject: number | null; message: string;
  data: Record<string, string> | null;
}
export interface AuditEntry { id: number; at: string; actor: string; action: string; target: string; before: string; after: string; why: string }
export interface Freeze { scope: "all" | "project" | "job"; target: string; by: string; why: string; at: string }
export interface Health {
  version: string; started_at: string; database: string; database_bytes: number; pools: string[];
  policy_mode: PolicyMode; degraded: string[]; skew_seconds: number; who: string; role: Role;
}
export interface Problem { type: string; title: string; status: number; detail: string; field: string | null; request_id: string }
