/** How a pool is divided: prices, who got what, what each might have had and who has that. */
import type { JobShare, PoolRound, PoolView } from "../api/types.ts";
import * as calls from "../api/calls.ts";
import { jobLink, place } from "../state/fleet.ts";
import { type Resource, useResource } from "../state/resource.ts";
import { link, route } from "../state/route.ts";
import { health } from "../state/session.ts";
import { Icon, type IconName, type Tone } from "../ui/icons.tsx";
import { Age, Command, Empty, FromTo, Heading, Message, Skeleton, Trouble } from "../ui/parts.tsx";
import { Shell } from "../ui/shell.tsx";
import { count, quantity } from "../words/format.ts";
import { amount, byChange, gap, rival } from "../words/shares.ts";

/** What a round meant for a job, in the shapes of plans. */
const OUTCOMES: Record<string, { icon: IconName; tone: Tone; word: string }> = {
  grows: { icon: "applying", tone: "brain", word: "Grows" },
  shrinks: { icon: "applying", tone: "brain", word: "Makes room" },
  moves: { icon: "applying", tone: "brain", word: "Moves" },
  starts: { icon: "starting", tone: "brain", word: "Starts" },
  stops: { icon: "holding", tone: "warn", word: "Stops" },
  waits: { icon: "queued", tone: "mut", word: "Waits" },
  held: { icon: "hold", tone: "mut", word: "Held" },
  refused: { icon: "plan-failed", tone: "warn", word: "Refused" },
  keeps: { icon: "hold", tone: "mut", word: "Keeps" },
};

export function usePool(name: string): Resource<PoolView> {
  return useResource(`pool ${name}`, () => calls.pool(name), { concerns: ({ kind }) => kind === "list.pools" || kind === "list.nodes" });
}

export function Pool() {
  const named = route.value.rest[0] ?? place.value;
  const known = health.value?.pools ?? [];
  if (!known.includes(named)) return <Shell crumbs={<h1>Pool {named}</h1>}><Unknown named={named} known={known} /></Shell>;
  return <Known named={named} />;
}

/** Nothing is asked about a pool that is none: the service tells which ones there are. */
function Unknown({ named, known }: { named: string; known: readonly string[] }) {
  return (
    <Empty title={`There is no pool ${named}, because no pool named ${named} has nodes or unfinished jobs.`}>
      {known.length > 0 ? <>Go to {known.map((one) => <a class="link" key={one} href={link("pool", one)}>{one}</a>)}.</> : <>A scaler registers the nodes of a pool; on one machine <code>brain up</code> starts a scaler.</>}
    </Empty>
  );
}

function Known({ named }: { named: string }) {
  const pool = usePool(named);
  const { value, failure } = pool.state.value;
  return (
    <Shell crumbs={<h1>Pool {named}</h1>}>
      {failure && !value && <Trouble failure={failure} what="pool" />}
      {!value && !failure && <Skeleton label="Loading the pool" />}
      {value && <Filled pool={value} />}
    </Shell>
  );
}

function Filled({ pool }: { pool: PoolView }) {
  const { round } = pool;
  if (!round || round.shares.length === 0)
    return (
      <Empty title="No jobs share this pool.">
        Brain decides about jobs with <code>optimizeMode: cluster</code> together, and shows their shares here.
        <Command text="brain submit -f job.yaml" />
      </Empty>
    );
  return (
    <>
      {round.observed_only && (
        <Message kind="quiet" icon="clock" title="This round changed nothing: it was the first after a start.">
          The next round may propose these changes.
        </Message>
      )}
      <Figures pool={pool} round={round} />
      <Shares shares={round.shares} />
      {pool.policy && <Projects pool={pool} round={round} />}
    </>
  );
}

/** What a round divided, at which prices, and how much better it could be. */
export function Figures({ pool, round }: { pool: PoolView; round: PoolRound }) {
  const kinds = Object.keys(round.units).sort();
  return (
    <dl class="kv nodesbar">
      <div><dt>Jobs that share</dt><dd>{pool.sharing} <small>of {count(pool.jobs, "job")}</small></dd></div>
      {kinds.map((kind) => (
        <div key={kind}>
          <dt>{kind === "cpu" ? "Cores" : kind} given</dt>
          <dd>{amount(round.used[kind])} <small>of {amount(round.capacity[kind])} to divide</small></dd>
        </div>
      ))}
      {kinds.map((kind) => (
        <div key={`price ${kind}`}>
          <dt>Price of {kind === "cpu" ? "a core" : `one ${kind}`}</dt>
          <dd>{quantity(round.prices[kind], 2)} <small>utility of one more</small></dd>
        </div>
      ))}
      <div><dt>A better division adds</dt><dd>{gap(pool.gap)} <small>at most</small></dd></div>
      <div><dt>Divided</dt><dd><Age at={round.decided_at} /> <small>ago, among {round.shares.length}</small></dd></div>
    </dl>
  );
}

function Shares({ shares }: { shares: readonly JobShare[] }) {
  const rows = [...shares].sort(byChange);
  return (
    <section class="sec">
      <Heading title="Shares" sub="each job's share, its next best size, and the job that has those accelerators; changes first" />
      <div class="scroll" tabIndex={0} role="region" aria-label="Shares of the pool">
        <table class="tbl inbox shares">
          <caption class="vh">Shares of the pool</caption>
          <thead><tr><th class="c-state">Round</th><th class="c-job">Job</th><th class="c-owner rare">Project</th><th class="c-size">Replicas</th><th>Why</th><th class="c-next">Next best</th><th class="c-job">Lost to</th></tr></thead>
          <tbody>{rows.map((share) => <Row key={share.job} share={share} />)}</tbody>
        </table>
      </div>
    </section>
  );
}

function Row({ share }: { share: JobShare }) {
  const look = OUTCOMES[share.outcome] ?? { icon: "hold", tone: "mut", word: share.outcome };
  const on = share.nodes.map(([node, replicas]) => `${node}: ${replicas}`).join(", ");
  return (
    <tr>
      <td><span class="badge"><Icon name={look.icon} tone={look.tone} />{look.word}</span></td>
      <td class="med"><a href={jobLink(share.job)}>{share.name}</a></td>
      <td class="mut rare">{share.project}</td>
      <td title={on}>{share.before === share.replicas ? share.replicas || "—" : <FromTo from={share.before} to={share.replicas} />}</td>
      <td class="why"><span class="clamp" title={share.reason}>{share.reason}</span></td>
      <td class="mut">{rival(share)}</td>
      <td>{share.lost_to ? <a href={jobLink(share.lost_to)}>{share.lost_to}</a> : "—"}</td>
    </tr>
  );
}

function Projects({ pool, round }: { pool: PoolView; round: PoolRound }) {
  const rows = Object.entries(pool.policy?.policy.projects ?? {}).sort(([one], [other]) => one.localeCompare(other));
  return (
    <section class="sec">
      <Heading title="Projects" sub={`divided by ${pool.policy?.by ?? "nobody"}`} />
      <div class="scroll" tabIndex={0} role="region" aria-label="Projects of the pool">
        <table class="tbl projects">
          <caption class="vh">How the pool is divided among projects</caption>
          <thead><tr><th class="c-job">Project</th><th class="num c-end">Guaranteed</th><th class="num c-end">Limit</th><th class="num c-end">Priority</th><th class="num c-end">Lacks now</th><td /></tr></thead>
          <tbody>
            {rows.map(([name, share]) => (
              <tr key={name}>
                <td class="med">{name}</td>
                <td class="num">{share.guaranteed}</td>
                <td class="num">{share.limit ?? "—"}</td>
                <td class="num">{share.priority}</td>
                <td class={`num ${round.short[name] ? "warn" : ""}`}>{round.short[name] ? amount(round.short[name]) : "—"}</td>
                <td />
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
