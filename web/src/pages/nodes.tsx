/** Nodes by pool: one cell per slot, GPU or core; place keeps its meaning. */
import type { NodeView } from "../api/types.ts";
import { jobLink, nodes } from "../state/fleet.ts";
import { now } from "../state/now.ts";
import { NodeBadge } from "../ui/badges.tsx";
import { Empty, Skeleton, Time, Trouble } from "../ui/parts.tsx";
import { Shell } from "../ui/shell.tsx";
import { age, bytes, cores, count, percent } from "../words/format.ts";

const CELL = 34;
const ACROSS = 8;
/** More cells than this are drawn as shares. */
const MOST = 64;

export function Nodes() {
  const { value, failure } = nodes.state.value;
  return (
    <Shell crumbs={<h1>Nodes</h1>}>
      {failure && <Trouble failure={failure} what="nodes" />}
      {!value && !failure && <Skeleton label="Loading nodes" />}
      {value?.length === 0 && (
        <Empty title="No nodes, because no scaler has registered one.">
          On one machine <code>brain up</code> starts a scaler, which registers the machine within seconds; if it does not, <code>brain doctor</code> gives the reason.
        </Empty>
      )}
      {value && value.length > 0 && <Racks all={value} />}
    </Shell>
  );
}

function Racks({ all }: { all: readonly NodeView[] }) {
  const pools = [...new Set(all.map((node) => node.pool))].sort();
  const ready = all.filter((node) => node.ready && node.schedulable).length;
  const [reserved, capacity] = [sum(all, "reserved"), sum(all, "capacity")];
  return (
    <>
      <dl class="kv nodesbar">
        <div><dt>Nodes</dt><dd>{ready} <small>of {all.length} ready</small></dd></div>
        <div><dt>CPU reserved</dt><dd>{cores(reserved.cpu)} <small>of {count(capacity.cpu / 1000, "core")}</small></dd></div>
        <div><dt>Memory reserved</dt><dd>{bytes(reserved.memory)} <small>of {bytes(capacity.memory)}</small></dd></div>
        {capacity.gpus > 0 && <div><dt>GPUs reserved</dt><dd>{reserved.gpus} <small>of {capacity.gpus}</small></dd></div>}
      </dl>
      <div class="racks">
        {pools.map((pool) => (
          <section key={pool}>
            <div class="h"><h2>Pool {pool}</h2></div>
            <div class="machines">
              {all.filter((node) => node.pool === pool).sort((one, other) => one.name.localeCompare(other.name, undefined, { numeric: true })).map((node) => <Machine key={node.name} node={node} />)}
            </div>
          </section>
        ))}
      </div>
      <p class="cap12">One cell is one slot; on a node without slots, one GPU; without GPUs, one core. Filled: reserved by a job. Dashed: free. Slash: drained. “?”: the node's scaler does not report. Left: a job found the node sick or slow, and avoids the node for an hour.</p>
    </>
  );
}

function sum(all: readonly NodeView[], part: "reserved" | "capacity"): { cpu: number; memory: number; gpus: number } {
  return all.reduce((total, { [part]: one }) => ({ cpu: total.cpu + one.cpu_millis, memory: total.memory + one.memory_bytes, gpus: total.gpus + one.gpus }), { cpu: 0, memory: 0, gpus: 0 });
}

function Machine({ node }: { node: NodeView }) {
  const { capacity, reserved } = node;
  const said = !node.schedulable ? [] : [
    `cpu ${percent(capacity.cpu_millis ? reserved.cpu_millis / capacity.cpu_millis : null)}`,
    `mem ${percent(capacity.memory_bytes ? reserved.memory_bytes / capacity.memory_bytes : null)}`,
    node.accelerator === "cpu" ? "" : node.accelerator,
  ].filter(Boolean);
  return (
    <div class="machine">
      <div class="who"><b>{node.name}</b><NodeBadge node={node} /><span class={node.ready ? "mut" : "warn"}>{node.ready ? said.map((one) => <span key={one}>{one}</span>) : `for ${age(node.seen_at, now.value)}`}</span></div>
      <Cells node={node} />
      <p class="jn">{node.jobs.length > 0 ? node.jobs.map((name) => <a key={name} href={jobLink(name)}>{name}</a>) : <span class="mut">{!node.schedulable ? "no new replicas start here" : node.ready ? "free" : "no jobs"}</span>}</p>
      {node.left.map(({ job, job_name, until, why }) => (
        <p key={job} class="jn warn" title={why}><span><a href={jobLink(job)}>{job_name}</a> avoids this node until <Time at={until} />: {why}</span></p>
      ))}
    </div>
  );
}

function Cells({ node }: { node: NodeView }) {
  const { capacity, reserved, slots } = node;
  const unit = capacity.gpus > 0 ? capacity.gpus : Math.round(capacity.cpu_millis / 1000);
  const cells = Math.min(MOST, Math.max(1, slots ?? unit));
  const share = capacity.gpus > 0 ? reserved.gpus / capacity.gpus : capacity.cpu_millis ? reserved.cpu_millis / capacity.cpu_millis : 0;
  const taken = Math.min(cells, Math.round(share * cells * 100) / 100);
  const rows = Math.ceil(cells / ACROSS);
  return (
    <svg class="c" width={ACROSS * CELL} height={rows * CELL} role="img" aria-label={`${Math.ceil(taken)} of ${cells} cells reserved`}>
      {Array.from({ length: cells }, (_, index) => {
        const [x, y] = [(index % ACROSS) * CELL + 0.5, Math.floor(index / ACROSS) * CELL + 0.5];
        const filled = Math.min(1, Math.max(0, taken - index));
        return (
          <g key={index}>
            <rect class={node.schedulable ? "free" : "h0"} x={x} y={y} width="31" height="31" />
            {node.ready && filled > 0 && <rect class="h3" x={x} y={y} width={31 * filled} height="31" />}
            {!node.schedulable && <line class="gl" x1={x + 8} x2={x + 23} y1={y + 23} y2={y + 8} />}
            {!node.ready && <text class="cellt ax" x={x + 15.5} y={y + 20}>?</text>}
          </g>
        );
      })}
    </svg>
  );
}
