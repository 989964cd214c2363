/** Who did what to what, and why; newest first. */
import { useEffect, useState } from "preact/hooks";
import * as calls from "../api/calls.ts";
import type { AuditEntry } from "../api/types.ts";
import { jobLink, nameOf } from "../state/fleet.ts";
import { useResource } from "../state/resource.ts";
import { said } from "../state/session.ts";
import { tell } from "../ui/ask.tsx";
import { Empty, Heading, Skeleton, Trouble } from "../ui/parts.tsx";
import { Shell } from "../ui/shell.tsx";
import { instant, moment } from "../words/format.ts";
import { joined, type Log } from "../words/log.ts";
import { now } from "../state/now.ts";

export function Audit() {
  const first = useResource("audit", () => calls.audit(), { concerns: ({ kind }) => kind === "list.audit" });
  /** All rows, once older ones were asked for; null before. */
  const [read, setRead] = useState<Log<AuditEntry> | null>(null);
  const [busy, setBusy] = useState(false);
  const { value, failure } = first.state.value;
  const { rows, next } = joined({ rows: value?.items ?? [], next: value?.next_page_token ?? "" }, read);
  // New entries are kept as they come: more than a page of them would leave a hole.
  useEffect(() => setRead((known) => known && { rows, next }), [value]);
  const more = async () => {
    setBusy(true);
    try {
      const page = await calls.audit(next);
      setRead({ rows: [...rows, ...page.items], next: page.next_page_token ?? "" });
    } catch (failed) {
      tell(said(failed));
    }
    setBusy(false);
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
          {next && <button type="button" class="btn mt" disabled={busy} onClick={() => void more()}>Show older entries</button>}
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
