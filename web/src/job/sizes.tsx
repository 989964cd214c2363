/** Scaling and what-if: the model's answer for every size, and a plan of one's own. */
import { useState } from "preact/hooks";
import * as calls from "../api/calls.ts";
import type { JobView, Scaling } from "../api/types.ts";
import { ScalingCurve } from "../charts/scaling.tsx";
import { maySteer } from "../state/access.ts";
import { askSize } from "../state/decide.tsx";
import { useResource } from "../state/resource.ts";
import { Button, Heading, Trouble } from "../ui/parts.tsx";
import { change, count, gain, promised } from "../words/format.ts";

export function Sizes({ job }: { job: JobView }) {
  const found = useResource(`what-if ${job.id}`, () => calls.scaling(job.id), {
    quiet: 5, concerns: (news) => news.job === job.id && news.kind !== "row",
  });
  const [chosen, choose] = useState<number | null>(null);
  const { value: told, failure } = found.state.value;
  const value = told && withPresent(told, job);
  // A job that trains may be asked for a size that no model knows; of others nothing can be drawn.
  const empty = (job.finished_at !== null || job.epoch === null) && value?.sizes.every((one) => !one.prediction && !one.measured);
  return (
    <section>
      <Heading title="Scaling" sub={`${job.unit_of_throughput} over replicas, 90 % band`} />
      {failure && !value && <Trouble failure={failure} what="scaling curve" />}
      {value && empty && <p class="quiet" id="what-if" tabIndex={-1}>No curve, because {value.sizes[0]?.undetermined ?? "nothing was measured"}.</p>}
      {value && !empty && (
        <div
          id="what-if" tabIndex={0} role="group" aria-label="What-if: the arrow keys choose a size"
          onKeyDown={(event) => {
            const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
            if (step === 0) return;
            event.preventDefault();
            choose(neighbour(value, chosen ?? value.current, step));
          }}
        >
          <Answer job={job} scaling={value} chosen={chosen} />
          <ScalingCurve scaling={value} unit={job.unit_of_throughput} chosen={chosen} ended={job.finished_at !== null} onChoose={choose} />
        </div>
      )}
    </section>
  );
}

/** The size that runs has the throughput that the whole page tells, not that of a moment before. */
function withPresent(scaling: Scaling, { replicas, throughput }: JobView): Scaling {
  if (!throughput || replicas !== scaling.current) return scaling;
  const sizes = scaling.sizes.map((one) => (one.replicas === replicas ? { ...one, measured: throughput } : one));
  return { ...scaling, sizes };
}

function neighbour({ sizes }: Scaling, from: number, step: number): number {
  const at = sizes.findIndex(({ replicas }) => replicas === from) + step;
  return sizes[Math.min(sizes.length - 1, Math.max(0, at))]?.replicas ?? from;
}

function Answer({ job, scaling, chosen }: { job: JobView; scaling: Scaling; chosen: number | null }) {
  const one = scaling.sizes.find(({ replicas }) => replicas === chosen);
  if (!one) return <p class="whatif mut">Choose a size below, or with the arrow keys, to see the prediction here.</p>;
  const here = scaling.sizes.find(({ replicas }) => replicas === scaling.current);
  const base = here?.measured ?? here?.prediction;
  const answer = one.prediction ?? one.measured;
  const share = gain(base?.examples_per_second, answer?.examples_per_second);
  return (
    <div class="whatif" role="status">
      <span>
        <b>{count(one.replicas, "replica")}</b>{" "}
        {answer ? <>{promised(answer)} {job.unit_of_throughput}{one.replicas !== scaling.current && share !== null && `, ${change(share)}`}</> : one.undetermined}
        {one.prediction?.exploring && <span class="mut"> exploring</span>}
      </span>
      {one.replicas !== scaling.current && !job.finished_at && (
        <Button forbidden={maySteer(job)} onClick={() => askSize(job, one.replicas)}>Ask for {one.replicas}…</Button>
      )}
    </div>
  );
}
