/** All jobs; the filter is the grammar of `--filter` and stands in the address. */
import { useState } from "preact/hooks";
import * as calls from "../api/calls.ts";
import { useKeys } from "../state/keys.ts";
import { useResource } from "../state/resource.ts";
import { route, setQuery } from "../state/route.ts";
import { JobTable, SORTS } from "../ui/jobtable.tsx";
import { Skeleton, Trouble } from "../ui/parts.tsx";
import { Shell } from "../ui/shell.tsx";
import { byUrgency } from "../words/attention.ts";
import { count } from "../words/format.ts";
import { Welcome } from "./welcome.tsx";

const CHIPS = [
  { text: "state: active", filter: "state:Queued,Starting,Running,Changing,Degraded,Suspended" },
  { text: "state: ended", filter: "state:Succeeded,Failed,Cancelled" },
  { text: "owner: me", filter: "owner:me" },
  { text: "mode: approve", filter: "mode:approve" },
];

/** Rows that a page shows at once; more on demand keep it quick with hundreds of jobs. */
const ROWS = 200;

export function Jobs() {
  const query = route.value.query;
  const filter = query.get("filter") ?? "";
  const sort = query.get("sort") ?? "";
  const [rows, setRows] = useState(ROWS);
  const found = useResource(`jobs ${filter}`, () => pages(filter), { every: 5 });
  const { value, failure } = found.state.value;
  const sorted = value && [...value].sort(SORTS[sort] ?? byUrgency);
  const active = (value ?? []).filter((job) => !job.finished_at).length;
  useKeys([{ keys: "/", does: "filter", run: () => document.getElementById("filter")?.focus() }], []);
  if (value?.length === 0 && filter === "") return <Shell crumbs={<h1>Jobs</h1>}><Welcome /></Shell>;
  return (
    <Shell crumbs={<h1>Jobs</h1>}>
      <div class="bar">
        <input id="filter" class="field" type="search" aria-label="Filter, for example state:Running owner:me" placeholder="Filter: state:Running owner:me name" value={filter} onChange={(event) => setQuery({ filter: event.currentTarget.value.trim() })} />
        {CHIPS.map((chip) => (
          <button type="button" class="chip" key={chip.filter} aria-pressed={filter === chip.filter} onClick={() => setQuery({ filter: filter === chip.filter ? "" : chip.filter })}>
            {chip.text}
          </button>
        ))}
        <span class="sp mut">{value && `${active} active, ${value.length - active} ended`}</span>
      </div>
      {failure && <Trouble failure={failure} what="jobs" />}
      {sorted ? <JobTable jobs={sorted.slice(0, rows)} sort={sort || "state"} onSort={(key) => setQuery({ sort: key })} /> : !failure && <Skeleton label="Loading jobs" rows={10} />}
      {sorted?.length === 0 && <p class="quiet">No job matches <code>{filter}</code>. Keys are state, project, owner, pool and mode; other words are looked for in names.</p>}
      {sorted && sorted.length > rows && <button type="button" class="btn" onClick={() => setRows(rows + ROWS)}>Show {count(Math.min(ROWS, sorted.length - rows), "more job")}</button>}
    </Shell>
  );
}

async function pages(filter: string) {
  const found = [];
  let token = "";
  do {
    const page = await calls.jobs(filter, token);
    found.push(...page.items);
    token = page.next_page_token ?? "";
  } while (token && found.length < 2000);
  return found;
}
