/** All plans of a job, each with its promise strip. */
import type { PlanView } from "../api/types.ts";
import { Change, PlanBadge, Standing } from "../ui/badges.tsx";
import { Heading, Time } from "../ui/parts.tsx";
import { PlanStrip, StripKey } from "../ui/strip.tsx";
import { measuredOf } from "../words/format.ts";
import { missed } from "../words/verdicts.ts";

export function PlanList({ plans }: { plans: readonly PlanView[] }) {
  return (
    <section class="sec-s">
      <Heading title="Plans" sub="measured of promised" more={plans.length > 0 && <StripKey />} />
      {plans.length === 0 && <p class="quiet">None: generation 0 is the submitted document.</p>}
      <table class="plans">
        <caption class="vh">Plans, newest first</caption>
        <colgroup><col class="c-gen" /><col class="c-when" /><col class="c-state" /><col class="c-size" /><col class="c-strip" /><col /></colgroup>
        <tbody>
          {plans.map((view) => {
            const { plan, verdict } = view;
            const undecided = plan.state === "Proposed" || plan.state === "Approved";
            const faded = ["Rejected", "Superseded", "Expired"].includes(plan.state);
            return (
              <tr key={plan.generation} class={faded ? "off" : ""} title={plan.outcome.detail || plan.explanation.reason}>
                <td class="str">g{plan.generation}</td>
                <td class="mut"><Time at={plan.created_at} /></td>
                <td><PlanBadge told={view} /></td>
                <td><Change plan={plan} open={undecided} /></td>
                <td><PlanStrip told={view} width={72} /></td>
                <td class={`num ${undecided ? "brain" : missed(verdict) ? "bad" : "mut"}`}>{verdict === "inconclusive" && !plan.outcome.measured ? "not measured" : measuredOf(plan.outcome.measured, plan.promised)}<Standing told={view} /></td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}
