/** The observed station of a plan, never the asked-for one. */
import type { PlanState, ScalePlan } from "../api/types.ts";
import { planLook, stateLook } from "../ui/badges.tsx";
import { Mark } from "../ui/icons.tsx";
import { type Told, word } from "../words/verdicts.ts";

const WAY: PlanState[] = ["Proposed", "Approved", "Applying", "Applied"];

export function PlanTrack({ told, width = 404 }: { told: Told; width?: number }) {
  const { plan } = told;
  const at = WAY.indexOf(plan.state);
  const stations: PlanState[] = at >= 0 ? [...WAY, "Verified"] : plan.state === "Verified" ? [...WAY, "Verified"] : reached(plan);
  const here = stations.indexOf(plan.state);
  const x = (index: number): number => 26 + (index / (stations.length - 1)) * (width - 52);
  return (
    <svg class="c track" viewBox={`0 0 ${width} 42`} width={width} height="42" role="img" aria-label={`${word(told)}; station ${here + 1} of ${stations.length}`}>
      {stations.slice(1).map((state, index) => (
        <line key={state} class={index < here ? "bl" : "ideal"} x1={x(index) + 10} x2={x(index + 1) - 10} y1="12" y2="12" />
      ))}
      {stations.map((state, index) => {
        const look = index === here ? planLook(told) : stateLook(state);
        return (
          <g key={state}>
            <Mark name={look.icon} tone={index > here ? "ghost" : look.tone} x={x(index)} y={12} />
            <text class={`m ${index === here ? "rd" : "ax"}`} x={x(index)} y="36">{look.word}</text>
          </g>
        );
      })}
    </svg>
  );
}

/** How far a plan came that ended aside. */
function reached(plan: ScalePlan): PlanState[] {
  if (plan.state === "RolledBack") return [...WAY, plan.state];
  if (plan.outcome.epoch !== null) return [...WAY, plan.state];
  return plan.approval ? ["Proposed", "Approved", plan.state] : ["Proposed", plan.state];
}
