/** All jobs; the filter is the grammar of `--filter` and stands in the address. */
import { useState } from "preact/hooks";
import { jobs, MOST } from "../state/fleet.ts";
import { useKeys } from "../state/keys.ts";
import { route, setQuery } from "../state/route.ts";
import { health } from "../state/session.ts";
import { JobTable, SORTS } from "../ui/jobtable.tsx";
import { Message, Skeleton, Trouble } from "../ui/parts.tsx";
import { Shell } from "../ui/shell.tsx";
import { byUrgency } from "../words/attention.ts";
import { parseFilter } from "../words/filters.ts";
import { fixed } from "../words/format.ts";
import { Welcome } from "./welcome.tsx";

const CHIPS = [
  { text: "state: active", filter: "state:Queued,Starting,Running,Changing,Degraded,Suspended" },
  { text: "state: ended", filter: "state:Succeeded,Failed,Cancelled" },
  { text: "owner: me", filter: "owner:me" },
  { text: "mode: approve", filter: "mode:approve" },
];

export function Jobs() {
  const query = route.value.query;
  const filter = query.get("filter") ?? "";
  const sort = query.get("sort") ?? "";
  const { value, failure } = jobs.state.value;
  const wanted = parseFilter(filter, health.value?.who ?? "");
  const found = typeof wanted === "string" ? [] : (value ?? []).filter(wanted).sort(SORTS[sort] ?? byUrgency);
  const active = found.filter((job) => !job.finished_at).length;
  useKeys([{ keys: "/", does: "filter", run: () => document.getElementById("filter")?.focus() }], []);
  if (value?.length === 0) return <Shell crumbs={<h1>Jobs</h1>}><Welcome /></Shell>;
  return (
    <Shell crumbs={<h1>Jobs</h1>}>
      <div class="bar">
        <Field filter={filter} />
        {CHIPS.map((chip) => (
          <button type="button" class="chip" key={chip.filter} aria-pressed={filter === chip.filter} onClick={() => setQuery({ filter: filter === chip.filter ? "" : chip.filter })}>
            {chip.text}
          </button>
        ))}
        <span class="sp mut">{value && `${active} active, ${found.length - active} ended`}{(value?.length ?? 0) >= MOST && `, of the ${fixed(MOST)} newest`}</span>
      </div>
      {failure && <Trouble failure={failure} what="jobs" />}
      {typeof wanted === "string" && <Message kind="bad" icon="failed" title="No jobs.">{wanted}</Message>}
      {value && found.length > 0 && <JobTable jobs={found} sort={sort || "state"} onSort={(key) => setQuery({ sort: key })} />}
      {!value && !failure && <Skeleton label="Loading jobs" rows={10} />}
      {value && typeof wanted !== "string" && found.length === 0 && <p class="quiet">No job matches <code>{filter}</code>. Keys are state, project, owner, pool and mode; Brain searches names for other words.</p>}
    </Shell>
  );
}

/** The list follows what is typed; spaces at an end are kept while somebody types. */
function Field({ filter }: { filter: string }) {
  const [text, setText] = useState(filter);
  const typed = (value: string) => {
    setText(value);
    setQuery({ filter: value.trim() });
  };
  return <input id="filter" class="field" type="search" aria-label="Filter, for example state:Running owner:me" placeholder="Filter: state:Running owner:me name" value={text.trim() === filter ? text : filter} onInput={(event) => typed(event.currentTarget.value)} />;
}
