/** What the model of a job rests on, and whether its promises were kept. */
import type { ComponentChildren } from "preact";
import * as calls from "../api/calls.ts";
import type { Calibrated, JobView, Look, ModelView } from "../api/types.ts";
import { Promises } from "../charts/calibration.tsx";
import { useResource } from "../state/resource.ts";
import { Heading, Trouble } from "../ui/parts.tsx";
import { change, count, duration, fixed, percent, quantity } from "../words/format.ts";

/** As many promises as are drawn. */
const SHOWN = 8;

export function Model({ job }: { job: JobView }) {
  const found = useResource(`model ${job.id}`, () => calls.model(job.id), {
    every: 30, quiet: 5, concerns: (news) => news.job === job.id,
  });
  const { value, failure } = found.state.value;
  return (
    <section class="sec-s" aria-label="Model">
      <Heading title="Model" sub="measured against promised, 90 % bands" />
      {failure && !value && <Trouble failure={failure} what="model" />}
      {value && (
        <>
          {value.kept.length > 0 && <Promises kept={value.kept.slice(0, SHOWN)} />}
          <p class="cap12">{value.calibration ? told(value.calibration) : "No promise of this job was measured yet."}</p>
          <About model={value} />
          {value.looks.map((look) => <p class="cap12" key={look.replicas}>{lookSaid(look)}</p>)}
        </>
      )}
    </section>
  );
}

function About({ model }: { model: ModelView }) {
  const restart = model.restarts_measured > 0 ? `, from ${count(model.restarts_measured, "change")} of its own` : ", assumed";
  return (
    <dl class="about cap12">
      <Fact name="rests on">{model.basis}</Fact>
      {model.fits.map((fit) => (
        <Fact key={fit.accelerator} name={model.fits.length > 1 ? `fit, ${fit.accelerator}` : "fit"}>
          {count(fit.configurations, "configuration")}, {fit.rank} of 10 directions told apart
          {fit.held_out_error !== null && `, ±${percent(fit.held_out_error)} where left out`}
          {fit.bounds_hit.length > 0 && `; at a bound: ${fit.bounds_hit.join(", ")}`}
        </Fact>
      ))}
      {model.left_out.length > 0 && <Fact name="left out">{model.left_out.join("; ")}</Fact>}
      {model.widening > 1 && <Fact name="bands">widened {fixed(model.widening, 1)}×, because earlier ones did not hold</Fact>}
      {model.surprised && <Fact name="surprised">it was other than predicted lately, so nothing larger is</Fact>}
      {model.noise_examples !== null && <Fact name="gradient noise">{quantity(model.noise_examples)} examples</Fact>}
      <Fact name="a restart">{duration(model.restart_seconds)}{restart}</Fact>
      <Fact name="still to come">{duration(model.remaining_seconds)}, {model.remaining_basis}</Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return <><dt>{name}</dt><dd>{children}</dd></>;
}

function told(found: Calibrated): string {
  const inside = Math.round(found.coverage * found.count);
  const range = `${percent(found.coverage_low)} to ${percent(found.coverage_high)}`;
  return `${inside} of ${count(found.count, "promise")} held their band (${range} of all would), ${change(Math.exp(found.bias) - 1)} on average.`;
}

function lookSaid(look: Look): string {
  const parts = count(look.accumulation, "micro-batch", "micro-batches");
  return `Two minutes with ${parts} of ${fixed(look.local_batch)} examples a step would take ${percent(look.learned)} of the doubt about ${count(look.replicas, "replica")} away, and cost no restart.`;
}
