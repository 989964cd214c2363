/** Jobs as rows: 32 px, unusual first, ended ones faded; only those in sight are in the page. */
import type { RefObject } from "preact";
import { useCallback, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { JobView } from "../api/types.ts";
import { useKeys } from "../state/keys.ts";
import { minute } from "../state/now.ts";
import { go, link } from "../state/route.ts";
import { address } from "../words/attention.ts";
import { BLOCK, blocks, inSight, type Sight } from "../words/rows.ts";
import { clock, compared, fixed, gain, change } from "../words/format.ts";
import { changeOf, resizes } from "../words/verdicts.ts";
import { HoldBadge, JobBadge, PlanBadge, planLook } from "./badges.tsx";
import { FromTo, Time } from "./parts.tsx";
import { Sparkline } from "./sparkline.tsx";

/** Heights of a row and of the head, as the style sheet gives them. */
const [ROW, HEAD] = [32, 28];
/** Milliseconds without a scroll after which the blocks stand in the order of their rows again. */
const PAUSE = 400;
/** Milliseconds without a scroll after which rows look at the pointer again: under one at rest, each that passes is styled twice. */
const REST = 150;

interface TableProps {
  jobs: readonly JobView[];
  /** Fewer columns, as the overview needs them. */
  brief?: boolean;
  sort?: string;
  onSort?: (key: string) => void;
}

export const SORTS: Record<string, (one: JobView, other: JobView) => number> = {
  job: (one, other) => one.name.localeCompare(other.name),
  owner: (one, other) => one.owner.localeCompare(other.owner),
  throughput: (one, other) => value(other.throughput?.examples_per_second) - value(one.throughput?.examples_per_second),
  replicas: (one, other) => other.replicas - one.replicas,
  wait: (one, other) => value(other.data_wait_share) - value(one.data_wait_share),
  done: (one, other) => value(other.progress) - value(one.progress),
};

const value = (known: number | null | undefined): number => known ?? -1;

export function JobTable({ jobs, brief = false, sort, onSort }: TableProps) {
  const [selected, setSelected] = useState<string | null>(null);
  const rows = useStill(jobs);
  const table = useRef<HTMLTableElement>(null);
  const move = (by: number) => {
    const at = rows.findIndex((job) => job.id === selected);
    const next = Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + by));
    setSelected(rows[next]?.id ?? null);
    if (table.current) bringIntoSight(table.current, next);
  };
  const select = useCallback((id: string) => setSelected(id), []);
  const open = () => {
    const job = rows.find((one) => one.id === selected);
    if (job) go("jobs", address(job));
  };
  useKeys(
    [
      { keys: "j", does: "next row", run: () => move(1) },
      { keys: "k", does: "row before", run: () => move(-1) },
      { keys: "Enter", does: "open the row", run: open },
    ],
    [rows, selected],
  );
  const gpus = rows.some((job) => job.gpu_share !== null);
  const units = [...new Set(rows.filter((job) => job.throughput).map((job) => job.unit_of_throughput))];
  const mixed = units.length > 1;
  const head = (key: string, kind: string, text: string, unit = "") => <Head key={key} id={key} kind={kind} text={text} unit={unit} sort={sort} onSort={onSort} />;
  return (
    <div class="scroll" onPointerEnter={rows.hold} onPointerLeave={rows.release}>
      <table ref={table} style={{ height: `${HEAD + rows.length * ROW}px` }} aria-rowcount={rows.length + 1} class={`tbl jobs ${brief ? "brief" : ""} ${mixed || gpus ? "tight" : ""}`}>
        <caption class="vh">Jobs, unusual first</caption>
        <thead>
          <tr>
            {head("state", "c-state", "State")}{head("job", "c-name", "Job")}{!brief && head("owner", "c-owner rare", "Owner")}<th class="c-spark">Throughput, 3 h</th>
            {head("throughput", "c-rate num", mixed ? "Throughput" : (units[0] ?? "examples/s"))}{mixed && <th class="c-unit"><span class="vh">Unit of throughput</span></th>}
            {brief && <th class="c-versus num">vs promise</th>}{head("replicas", "c-num num", "Replicas")}{gpus && <th class="c-share num">GPU <span class="u">%</span></th>}
            <th class="c-share num rare">CPU <span class="u">%</span></th><th class="c-memory num opt">Memory <span class="u">%</span></th>{head("wait", "c-share num rare", "Wait", "%")}
            {!brief && head("done", "c-done num rare", "Done", "%")}<th class="c-ends num rare">Ends</th>{!brief && <th class="c-mode opt">Mode</th>}<th class="c-brain">Brain</th>
          </tr>
        </thead>
        <Blocks table={table} rows={rows} brief={brief} gpus={gpus} mixed={mixed} selected={selected} onSelect={select} />
      </table>
    </div>
  );
}

interface Columns {
  brief: boolean;
  gpus: boolean;
  mixed: boolean;
}

interface BlockProps extends Columns {
  rows: readonly JobView[];
  first: number;
  selected: string | null;
  onSelect: (id: string) => void;
}

/** Drawn anew only if something of it changed, not where others come and go. */
function Block({ rows, first, selected, onSelect, brief, gpus, mixed }: BlockProps) {
  return useMemo(() => (
    <tbody style={{ transform: `translateY(${first * ROW}px)` }}>
      {rows.slice(first, first + BLOCK).map((job, at) => <Row key={at} index={first + at} job={job} selected={job.id === selected} onSelect={onSelect} brief={brief} gpus={gpus} mixed={mixed} />)}
    </tbody>
  ), [rows, first, selected, brief, gpus, mixed]);
}

/** Elements of a block that leaves on one side come in on the other with other words: none is made while somebody scrolls. */
function Blocks({ table, rows, ...given }: Omit<BlockProps, "first"> & { table: RefObject<HTMLElement | null> }) {
  const { first, last, slots, still } = useSight(table, rows.length);
  const order = useRef<number[]>([]);
  const place = (at: number): number => order.current.indexOf(at % slots);
  const shown = blocks(first, last);
  if (still) order.current = shown.map((at) => at % slots);
  else shown.sort((one, other) => place(one) - place(other));
  return <>{shown.map((at) => <Block key={at % slots} first={at} rows={rows} {...given} />)}</>;
}

/** Which of so many rows are in sight, and whether nobody scrolls. */
function useSight(table: RefObject<HTMLElement | null>, count: number): Sight & { still: boolean } {
  const [seen, setSeen] = useState({ ...inSight(count, ROW, 0, 900), still: true });
  useLayoutEffect(() => {
    let pause: ReturnType<typeof setTimeout>;
    let rest: ReturnType<typeof setTimeout>;
    const moves = (yes: boolean) => table.current?.toggleAttribute("data-moving", yes);
    const scrolled = () => {
      moves(true);
      clearTimeout(rest);
      rest = setTimeout(() => moves(false), REST);
      look();
    };
    const look = () => {
      const next = inSight(count, ROW, (table.current?.getBoundingClientRect().top ?? 0) + HEAD, innerHeight);
      setSeen((now) => (now.first === next.first && now.last === next.last ? now : { ...next, still: false }));
      clearTimeout(pause);
      pause = setTimeout(() => setSeen((now) => ({ ...now, still: true })), PAUSE);
    };
    look();
    // Captured, because it is a part of the page that scrolls.
    addEventListener("scroll", scrolled, { capture: true, passive: true });
    addEventListener("resize", look);
    return () => (moves(false), clearTimeout(rest), clearTimeout(pause), removeEventListener("scroll", scrolled, { capture: true }), removeEventListener("resize", look));
  }, [count]);
  return seen;
}

function bringIntoSight(table: HTMLElement, index: number): void {
  const page = table.closest(".page");
  const top = table.getBoundingClientRect().top + HEAD + index * ROW;
  const [high, low] = [(page?.getBoundingClientRect().top ?? 0) + ROW, innerHeight - 2 * ROW];
  if (top < high || top > low) page?.scrollBy(0, top - (top < high ? high : low));
}

interface RowProps extends Columns {
  job: JobView;
  index: number;
  selected: boolean;
  onSelect: (id: string) => void;
}

function Row({ job, index, selected, onSelect, ...columns }: RowProps) {
  return (
    <tr
      aria-rowindex={index + 2} class={`${job.finished_at ? "off" : ""} ${selected ? "sel" : ""}`}
      onClick={() => onSelect(job.id)} onDblClick={() => go("jobs", address(job))}
    >
      <Cells job={job} {...columns} />
    </tr>
  );
}

interface Still extends Array<JobView> {
  hold: () => void;
  release: () => void;
}

/** Rows keep their place under the pointer and are sorted anew when it leaves. */
function useStill(jobs: readonly JobView[]): Still {
  const order = useRef<Map<string, number> | null>(null);
  const [, again] = useState(0);
  const held = order.current;
  const place = (job: JobView): number => held?.get(job.id) ?? Number.MAX_SAFE_INTEGER;
  const rows = held ? [...jobs].sort((one, other) => place(one) - place(other)) : [...jobs];
  return Object.assign(rows, {
    hold: () => (order.current = new Map(rows.map((job, at) => [job.id, at]))),
    release: () => ((order.current = null), again((turn) => turn + 1)),
  }) as Still;
}

const RIGHT = new Set(["throughput", "replicas", "wait", "done"]);

interface HeadProps {
  id: string;
  kind: string;
  text: string;
  unit: string;
  sort?: string;
  onSort?: (key: string) => void;
}

function Head({ id, kind, text, unit, sort = "state", onSort }: HeadProps) {
  const label = <>{text} {unit && <span class="u">{unit}</span>}</>;
  if (!onSort) return <th class={kind}>{label}</th>;
  return (
    <th class={kind} aria-sort={sort === id ? (RIGHT.has(id) ? "descending" : "ascending") : undefined}>
      <button type="button" class="plain" onClick={() => onSort(id === "state" ? "" : id)}>{label}{sort === id && " ↓"}</button>
    </th>
  );
}

/** Drawn anew only if something of it changed, or the minute did. */
function Cells({ job, brief, gpus, mixed }: Columns & { job: JobView }) {
  const has = (kind: string): boolean => job.conditions.some((condition) => condition.kind === kind);
  const stale = has("StaleTelemetry");
  const share = (part: number | null, kind: string) => <td class={`${kind} num`}>{fixed(part === null ? null : part * 100)}</td>;
  return (
    <>
      <td class="c-state" title={job.reason}><JobBadge job={job} /></td>
      <td class={`c-name med ${cut(job.name, 14)}`} title={job.name}><a href={link("jobs", address(job))}>{job.name}</a></td>
      {!brief && <td class={`c-owner mut rare ${cut(job.owner, 9)}`} title={job.owner}>{job.owner}</td>}
      <td class="c-spark"><Sparkline values={job.sparkline} stale={stale || has("Hung")} ended={job.finished_at !== null} width={114} /></td>
      <td class="c-rate num">{compared(job.throughput?.examples_per_second)}</td>
      {mixed && <td class="c-unit u">{job.throughput && job.unit_of_throughput}</td>}
      {brief && <Versus job={job} stale={stale} />}
      <td class="c-num num">{job.finished_at ? "—" : <FromTo from={job.replicas} to={wished(job)} />}</td>
      {gpus && share(job.gpu_share, "c-share")}
      {share(job.cpu_share, "c-share rare")}{share(job.memory_share, "c-memory opt")}{share(job.data_wait_share, "c-share rare")}
      {!brief && <td class="c-done num rare"><Done share={job.progress} /></td>}
      <td class="c-ends num rare" title={job.ends_at ?? undefined}>{clock(job.finished_at ?? job.ends_at, minute.value)}</td>
      {!brief && <td class="c-mode mut opt">{job.mode}</td>}
      <td class="c-brain"><Brain job={job} /></td>
    </>
  );
}

/** Words of more letters may be wider than their cell. Each cell that clips is a layer to be put together anew at each frame. */
const cut = (words: string, letters: number): string => (words.length > letters ? "clip" : "");

/** What an open proposal asks for, else the wished size. */
function wished(job: JobView): number {
  return job.plan?.state === "Proposed" || job.plan?.state === "Approved" ? job.plan.target.replicas : job.replicas_wished || job.replicas;
}

function Versus({ job, stale }: { job: JobView; stale: boolean }) {
  if (stale) return <td class="c-versus num warn">stale</td>;
  if (job.state === "Changing") return <td class="c-versus num mut">changing</td>;
  const off = gain(job.promised?.examples_per_second, job.throughput?.examples_per_second);
  const below = job.promised && job.throughput && job.throughput.examples_per_second < job.promised.low;
  return <td class={`c-versus num ${below ? "warn" : ""}`}>{change(off, 1)}</td>;
}

function Done({ share }: { share: number | null }) {
  if (share === null) return <>—</>;
  return (
    <span class="done">
      <svg width="40" height="6" aria-hidden="true"><rect class="rest" width="40" height="6" rx="1" /><rect class="part" width={40 * share} height="6" rx="1" /></svg>
      {fixed(share * 100)}
    </span>
  );
}

function Brain({ job: { plan, verdict, decision, finished_at } }: { job: JobView }) {
  const held = !finished_at && decision !== null && decision.target.replicas === decision.current.replicas;
  const decided = decision?.decided_at ?? "";
  if (held && (!plan || (decided > plan.updated_at && verdict === "not applied")))
    return <HoldBadge><span class="clip" title={decision.explanation.reason}>Hold <Time at={decided} /></span></HoldBadge>;
  if (!plan) return <span class="dim">—</span>;
  return <PlanBadge told={{ plan, verdict }}><span class="clip" title={changeOf(plan)}>{planLook({ plan, verdict }).word}{!resizes(plan) && plan.kind !== "restart" && ` ${changeOf(plan)}`} <Time at={plan.updated_at} /></span></PlanBadge>;
}
