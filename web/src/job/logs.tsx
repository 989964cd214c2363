/** Output of the workers, followed as it grows. */
import { useEffect, useRef, useState } from "preact/hooks";
import * as calls from "../api/calls.ts";
import { Failed, type Failure } from "../api/http.ts";
import type { JobView, Replica } from "../api/types.ts";
import { said } from "../state/session.ts";
import { Heading, Trouble } from "../ui/parts.tsx";

/** Lines kept in the page; `brain logs` has all of them. */
const MOST = 5000;

export function Logs({ job, replicas }: { job: JobView; replicas: readonly Replica[] }) {
  const [replica, setReplica] = useState("");
  const [lines, failure] = useLines(job, replica);
  const host = useRef<HTMLPreElement>(null);
  const [follow, setFollow] = useState(true);
  useEffect(() => {
    if (follow && host.current) host.current.scrollTop = host.current.scrollHeight;
  }, [lines, follow]);
  return (
    <section class="sec logs">
      <Heading
        title="Logs" sub={job.finished_at ? "as printed" : "as printed, live"}
        more={
          <>
            <label>Replica <select value={replica} onChange={(event) => setReplica(event.currentTarget.value)}>
              <option value="">all</option>
              {replicas.map(({ id }) => <option key={id} value={String(id)}>{id}</option>)}
            </select></label>
            <label><input type="checkbox" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} /> stay at the end</label>
          </>
        }
      />
      {failure && <Trouble failure={failure} what="logs" />}
      <pre ref={host} tabIndex={0} aria-label="Output of the workers">{lines.join("\n") || (failure ? "" : "No output yet.")}</pre>
    </section>
  );
}

function useLines(job: JobView, replica: string): [readonly string[], Failure | null] {
  const [lines, setLines] = useState<readonly string[]>([]);
  const [failure, setFailure] = useState<Failure | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    setLines([]);
    setFailure(null);
    read(job, replica, stop.signal, (more) => setLines((known) => [...known, ...more].slice(-MOST))).catch((failed: unknown) => {
      if (stop.signal.aborted) return;
      setFailure(failed instanceof Failed ? failed.failure : { kind: "unreachable", detail: said(failed) });
    });
    return () => stop.abort();
  }, [job.id, replica]);
  return [lines, failure];
}

async function read(job: JobView, replica: string, stop: AbortSignal, onLines: (lines: string[]) => void): Promise<void> {
  const response = await calls.logs(job.id, replica, job.finished_at === null, stop);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const part = await reader?.read();
    if (!part || part.done) break;
    const lines = (rest + part.value).split("\n");
    rest = lines.pop() ?? "";
    onLines(lines.map(withoutHeartbeat));
  }
  if (withoutHeartbeat(rest)) onLines([withoutHeartbeat(rest)]);
}

/** The service sends NUL bytes while no line comes. */
const withoutHeartbeat = (line: string) => line.replace(/^\0+/, "");
