/** Output of the workers, followed as it grows. */
import { useEffect, useRef, useState } from "preact/hooks";
import * as calls from "../api/calls.ts";
import { Failed, type Failure } from "../api/http.ts";
import type { JobView, Replica } from "../api/types.ts";
import { sleep } from "../api/live.ts";
import { said } from "../state/session.ts";
import { Heading, Trouble } from "../ui/parts.tsx";
import { lastState } from "../words/log.ts";

/** Lines kept in the page; `brain logs` has all of them. */
const MOST = 5000;
/** Milliseconds from the end of the output to the next look at it, while the job goes on; each pause is twice the last. */
const [AGAIN, LONGEST] = [2000, 60_000];

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
  const latest = useRef(job);
  latest.current = job;
  useEffect(() => {
    const stop = new AbortController();
    setLines([]);
    const follow = async () => {
      for (let pause = AGAIN; ; pause = Math.min(LONGEST, 2 * pause)) {
        const ended = latest.current.finished_at !== null;
        let anew = true;
        const began = Date.now();
        try {
          await read(job.id, replica, !ended, stop.signal, (more) => {
            const from = anew;
            anew = false;
            setFailure(null);
            setLines((known) => [...(from ? [] : known), ...more].slice(-MOST));
          });
          setFailure(null);
          if (ended) return;
        } catch (failed) {
          if (stop.signal.aborted) return;
          setFailure(failed instanceof Failed ? failed.failure : { kind: "unreachable", detail: said(failed) });
        }
        // The service was restarted, or the job has just ended; what is read again takes the place of what is there.
        if (Date.now() - began > LONGEST) pause = AGAIN;
        await sleep(pause, stop.signal);
        if (stop.signal.aborted) return;
      }
    };
    void follow();
    return () => stop.abort();
  }, [job.id, replica]);
  return [lines, failure];
}

async function read(id: string, replica: string, follow: boolean, stop: AbortSignal, onLines: (lines: string[]) => void): Promise<void> {
  const response = await calls.logs(id, replica, follow, stop);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const part = await reader?.read();
    if (!part || part.done) break;
    const lines = (rest + part.value).split("\n");
    rest = lines.pop() ?? "";
    if (lines.length > 0) onLines(lines.map(lastState));
  }
  if (lastState(rest)) onLines([lastState(rest)]);
}
