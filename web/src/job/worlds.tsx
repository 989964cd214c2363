/** The worlds of a job, newest first: what each was formed for and what the change to it cost. */
import type { World } from "../api/types.ts";
import { now } from "../state/now.ts";
import { FromTo, Heading } from "../ui/parts.tsx";
import { count, duration, fixed, instant, moment } from "../words/format.ts";

const CAUSES: Record<World["cause"], string> = {
  start: "the job started", plan: "plan", failure: "a worker failed",
  membership: "a replica was lost, or came back", revert: "a change that failed was undone",
};

/** Of what is known; null where nothing is. */
const total = (values: readonly (number | null)[]): number | null =>
  values.reduce((sum, value) => (value === null ? sum : (sum ?? 0) + value), null);

export function Worlds({ worlds, until }: { worlds: readonly World[]; until: string | null }) {
  if (worlds.length === 0) return null;
  const rising = [...worlds].sort((one, other) => one.epoch - other.epoch);
  const redone = total(worlds.map((world) => world.steps_redone));
  const down = total(worlds.map((world) => world.downtime_seconds));
  const told = [count(worlds.length, "world"), down !== null && `${duration(down)} without a step between worlds`, redone !== null && `${count(redone, "step")} redone`].filter(Boolean).join(", ");
  return (
    <section class="sec">
      <Heading title="Worlds" sub={`${told}; newest first`} />
      <div class="scroll" tabIndex={0} role="region" aria-label="Worlds of the job">
        <table class="tbl wrap worlds">
          <caption class="vh">Worlds, newest first</caption>
          <thead>
            <tr>
              <th class="c-clock">Formed</th><th class="c-gen">Of</th><th class="c-size">Replicas</th><th>Because</th><th class="num c-rate">Downtime</th>
              <th class="num c-rate">Steps redone</th><th class="num c-ends">Lasted</th><th class="c-job">Nodes</th>
            </tr>
          </thead>
          <tbody>{rising.map((world, at) => <Row key={world.epoch} world={world} before={rising[at - 1]} after={rising[at + 1]} until={until} />).reverse()}</tbody>
        </table>
      </div>
    </section>
  );
}

interface RowProps {
  world: World;
  before: World | undefined;
  after: World | undefined;
  /** When the job ended. */
  until: string | null;
}

function Row({ world, before, after, until }: RowProps) {
  const size = world.members.length;
  const end = world.ended_at ?? after?.formed_at ?? until ?? now.value;
  const lasted = (new Date(end).getTime() - Date.parse(world.formed_at)) / 1000;
  return (
    <tr>
      <td class="mut" title={instant(world.formed_at)}>{moment(world.formed_at, now.value)}</td>
      <td class="mut">w{world.epoch}</td>
      <td><FromTo from={before?.members.length ?? size} to={size} open={false} /></td>
      <td>{because(world, before)}</td>
      <td class="num">{duration(world.downtime_seconds)}</td>
      <td class="num">{fixed(world.steps_redone)}</td>
      <td class="num mut">{duration(lasted)}</td>
      <td class="mut">{[...new Set(world.members.map(({ node }) => node))].join(", ")}</td>
    </tr>
  );
}

function because({ cause, generation }: World, before: World | undefined): string {
  if (cause === "plan") return `plan g${generation}`;
  return (cause === "failure" && before?.diagnosis?.sentence) || CAUSES[cause];
}
