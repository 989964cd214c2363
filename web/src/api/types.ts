/** The shapes of the API by their names, from `docs/reference/openapi.json` (`npm run types`). */
import type { components } from "./schema.d.ts";

type Schemas = components["schemas"];

export type Allocation = Schemas["Allocation"];
export type AuditEntry = Schemas["AuditEntry"];
export type BrainEvent = Schemas["Event"];
export type Calibrated = Schemas["Calibrated"];
export type Condition = Schemas["Condition"];
export type Evidence = Schemas["Evidence"];
export type Explanation = Schemas["Explanation"];
export type FreeTrial = Schemas["FreeTrial"];
export type Freeze = Schemas["Freeze"];
export type Health = Schemas["Health"];
export type JobDetail = Schemas["JobDetail"];
export type JobState = Schemas["JobState"];
export type JobView = Schemas["JobView"];
export type Kept = Schemas["Kept"];
export type ModelView = Schemas["ModelView"];
export type NodeView = Schemas["NodeView"];
export type Noise = Schemas["Noise"];
export type ToldBatch = Schemas["ToldBatch"];
export type PlanState = Schemas["PlanState"];
export type PlanVerdict = Schemas["PlanVerdict"];
export type PlanView = Schemas["PlanView"];
export type JobShare = Schemas["JobShare"];
export type PoolRound = Schemas["PoolRound"];
export type PoolView = Schemas["PoolView"];
export type Prediction = Schemas["Prediction"];
export type Problem = Schemas["Problem"];
export type Recommendation = Schemas["Recommendation"];
export type Replica = Schemas["Replica"];
export type ScalePlan = Schemas["ScalePlan"];
export type Savings = Schemas["Savings"];
export type Scaling = Schemas["Scaling"];
export type Series = Schemas["Series"];
export type WhatIf = Schemas["WhatIf"];
export type WorkerView = Schemas["WorkerView"];
export type World = Schemas["World"];

export interface Page<T> {
  items: T[];
  next_page_token: string | null;
}

/** Roles of `brain.types.record.Role`. */
export type Role = "viewer" | "submitter" | "operator" | "admin" | "scaler" | "agent";
