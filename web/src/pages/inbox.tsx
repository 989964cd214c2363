/** Plans that wait for a person. */
import { useState } from "preact/hooks";
import type { PlanView } from "../api/types.ts";
import { mayDecide } from "../state/access.ts";
import { askAbout } from "../state/decide.tsx";
import { jobAddress, jobLink, plans, waiting } from "../state/fleet.ts";
import { useKeys } from "../state/keys.ts";
import { now } from "../state/now.ts";
import { go } from "../state/route.ts";
import { Change, PlanBadge } from "../ui/badges.tsx";
import { Aged, Button, Empty, Heading, Skeleton, Trouble } from "../ui/parts.tsx";
import { Shell } from "../ui/shell.tsx";
import { PlanStrip } from "../ui/strip.tsx";
import { result } from "../words/attention.ts";
import { duration } from "../words/format.ts";

export function Inbox() {
  const { value, failure } = plans.state.value;
  return (
    <Shell crumbs={<h1>Inbox</h1>}>
      {failure && <Trouble failure={failure} what="plans" />}
      {!value && !failure && <Skeleton label="Loading plans" />}
      {value && (waiting.value.length === 0 ? (
        <Empty title="Nothing waits for you, because no plan is proposed.">
          In mode approve Brain asks here before it changes a job; each plan says why and what it promises.
        </Empty>
      ) : <Waiting views={waiting.value} />)}
    </Shell>
  );
}

function Waiting({ views }: { views: readonly PlanView[] }) {
  const [at, setAt] = useState(0);
  const chosen = views[Math.min(at, views.length - 1)];
  const forbidden = mayDecide();
  const move = (by: number) => setAt(Math.min(views.length - 1, Math.max(0, at + by)));
  useKeys(
    [
      { keys: "j", does: "next plan", run: () => move(1) },
      { keys: "k", does: "plan before", run: () => move(-1) },
      { keys: "Enter", does: "open the job", run: () => chosen && go("jobs", jobAddress(chosen.plan.job)) },
      { keys: "a", does: "approve the plan", run: () => chosen && !forbidden && !chosen.blocked && askAbout(chosen, "approve") },
      { keys: "r", does: "reject the plan", run: () => chosen && !forbidden && askAbout(chosen, "reject") },
    ],
    [views, at, forbidden],
  );
  return (
    <section>
      <Heading title="Waiting for you" sub={`${views.length}; the first to expire comes first`} />
      <table class="tbl inbox">
        <caption class="vh">Plans that wait for approval</caption>
        <thead><tr><th class="c-state">State</th><th class="c-job">Job</th><th class="c-size">Replicas</th><th>Why</th><th class="c-strip hide-s rare">Promise</th><th class="num c-end">Throughput</th><th class="num c-ends hide-s rare">Expires in</th><th class="c-acts"><span class="vh">Decide</span></th></tr></thead>
        <tbody>
          {views.map((view, index) => <Row key={`${view.plan.job} ${view.plan.generation}`} view={view} selected={view === chosen} onSelect={() => setAt(index)} forbidden={forbidden} />)}
        </tbody>
      </table>
    </section>
  );
}

interface RowProps {
  view: PlanView;
  selected: boolean;
  onSelect: () => void;
  forbidden: string | null;
}

function Row({ view, selected, onSelect, forbidden }: RowProps) {
  const { plan, job_name: name, blocked } = view;
  const end = result(view, now.value);
  return (
    <tr class={selected ? "sel" : ""} onClick={onSelect}>
      <td><PlanBadge told={view} /></td>
      <td class="med"><a href={jobLink(plan.job)}>{name}</a></td>
      <td><Change plan={plan} /></td>
      <td class="why"><span class="clamp" title={plan.explanation.reason}>{blocked ?? plan.explanation.reason}<Aged at={plan.updated_at} /></span></td>
      <td class="hide-s rare"><PlanStrip told={view} /></td>
      <td class={`num ${end.tone}`}>{end.text}</td>
      <td class="num mut hide-s rare">{duration((Date.parse(plan.expires_at) - now.value) / 1000)}</td>
      <td class="num">
        <span class="acts">
          <Button kind="pri" forbidden={forbidden ?? blocked} onClick={() => askAbout(view, "approve")}>Approve</Button>
          <Button forbidden={forbidden} onClick={() => askAbout(view, "reject")}>Reject…</Button>
        </span>
      </td>
    </tr>
  );
}
