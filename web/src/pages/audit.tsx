/** Who did what to what, and why; newest first. */
import { useState } from "preact/hooks";
import * as calls from "../api/calls.ts";
import type { AuditEntry } from "../api/types.ts";
import { jobLink, nameOf } from "../state/fleet.ts";
import { useResource } from "../state/resource.ts";
import { Empty, Heading, Skeleton, Trouble } from "../ui/parts.tsx";
import { Shell } from "../ui/shell.tsx";
import { instant, moment } from "../words/format.ts";
import { now } from "../state/now.ts";

export function Audit() {
  const first = useResource("audit", () => calls.audit(), { concerns: ({ kind }) => kind === "list.audit" });
  const [older, setOlder] = useState<AuditEntry[]>([]);
  const [token, setToken] = useState<string | null>(null);
  const { value, failure } = first.state.value;
  const next = token ?? value?.next_page_token ?? "";
  const newest = value?.items ?? [];
  const known = new Set(newest.map((entry) => entry.id));
  const rows = [...newest, ...older.filter((entry) => !known.has(entry.id))];
  const more = async () => {
    const page = await calls.audit(next);
    setOlder([...older, ...page.items]);
    setToken(page.next_page_token ?? "");
  };
  return (
    <Shell crumbs={<h1>Audit</h1>}>
      {failure && !value && <Trouble failure={failure} what="the audit log" />}
      {!value && !failure && <Skeleton label="Loading the audit log" />}
      {value && rows.length === 0 && <Empty title="No entries yet.">Every action, including automatic ones, is recorded here and never changed.</Empty>}
      {rows.length > 0 && (
        <>
          <Heading title="Audit" sub="appended, never changed; newest first" />
          <table class="tbl wrap audit">
            <caption class="vh">Audit log</caption>
            <thead><tr><th class="c-clock">Time</th><th class="c-kind">Who</th><th class="c-kind">Did</th><th>To</th><th>From → to</th><th>Why</th></tr></thead>
            <tbody>{rows.map((entry) => <Row key={entry.id} entry={entry} />)}</tbody>
          </table>
          {next && <button type="button" class="btn mt" onClick={() => void more()}>Show older entries</button>}
        </>
      )}
    </Shell>
  );
}

/** A job or a plan of it, as programs name them. */
const ABOUT = /^(job|plan)\/([0-9a-f-]{36})(?:\/(\d+))?$/;

function Row({ entry }: { entry: AuditEntry }) {
  const [, kind = "", id = "", generation] = ABOUT.exec(entry.target) ?? [];
  const known = id !== "" && nameOf(id) !== id;
  const target = known ? `${kind} ${generation ? `g${generation} of ` : ""}${nameOf(id)}` : entry.target;
  return (
    <tr>
      <td class="mut" title={instant(entry.at)}>{moment(entry.at, now.value)}</td>
      <td>{entry.actor}</td>
      <td>{entry.action}</td>
      <td>{known ? <a class="link" href={jobLink(id)}>{target}</a> : target}</td>
      <td class={entry.before || entry.after ? "" : "hide-s"}>{entry.before || entry.after ? `${entry.before || "—"} → ${entry.after || "—"}` : "—"}</td>
      <td class={entry.why ? "mut" : "mut hide-s"}>{entry.why || "—"}</td>
    </tr>
  );
}
