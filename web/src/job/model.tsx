/** What the model of a job rests on, and whether its promises were kept. */
import type { ComponentChildren } from "preact";
import * as calls from "../api/calls.ts";
import type { Calibrated, FreeTrial, JobView, ModelView, Noise, ToldBatch } from "../api/types.ts";
import { Promises } from "../charts/calibration.tsx";
import { useResource } from "../state/resource.ts";
import { Heading, Trouble } from "../ui/parts.tsx";
import { change, count, duration, fixed, percent, quantity } from "../words/format.ts";

/** As many promises as are drawn. */
const SHOWN = 8;

export function Model({ job }: { job: JobView }) {
  const found = useResource(`model ${job.id}`, () => calls.model(job.id), {
    quiet: 5, concerns: (news) => news.job === job.id && news.kind !== "row",
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
          <About model={value} job={job} />
          {value.trials.map((one) => <p class="cap12" key={one.replicas}>{trialSaid(one)}</p>)}
        </>
      )}
    </section>
  );
}

function About({ model, job }: { model: ModelView; job: JobView }) {
  const restart = model.restarts_measured > 0 ? `, from ${count(model.restarts_measured, "change")} of its own` : ", assumed";
  return (
    <dl class="about cap12">
      <Fact name="rests on">{model.basis}</Fact>
      {model.fits.map((fit) => (
        <Fact key={fit.accelerator} name={model.fits.length > 1 ? `fit, ${fit.accelerator}` : "fit"}>
          {count(fit.configurations, "configuration")}, which determine {fit.rank} of 10 combinations of parameters
          {fit.held_out_error !== null && `, ±${percent(fit.held_out_error)} on sizes left out of the fit`}
          {fit.bounds_hit.length > 0 && `; parameters at a bound of their range: ${fit.bounds_hit.join(", ")}`}
        </Fact>
      ))}
      {model.left_out.length > 0 && <Fact name="left out">{model.left_out.join("; ")}</Fact>}
      {model.widening > 1 && <Fact name="bands">widened {fixed(model.widening, 1)}×, because measurements lay outside earlier bands</Fact>}
      {model.surprised && <Fact name="surprised">recent worlds missed their predictions, so Brain predicts no larger size</Fact>}
      <Fact name="gradient noise">{noiseSaid(model.noise)}</Fact>
      {model.noise.exchange_wait_share !== null && <Fact name="exchange">{percent(model.noise.exchange_wait_share)} of a step is a wait for gradients, while nothing is left to compute</Fact>}
      {model.best_batch && <Fact name="best batch">{fixed(model.best_batch.examples)} examples ({change(model.best_batch.gain)} goodput, each worth {percent(model.best_batch.efficiency)})</Fact>}
      {model.told_batch && <Fact name="told batch">{toldBatch(model.told_batch)}</Fact>}
      <Fact name="a restart">{duration(model.restart_seconds)}{restart}</Fact>
      {!job.finished_at && model.remaining_seconds !== 0 && <Fact name="still to come">{duration(model.remaining_seconds)}, {model.remaining_basis}</Fact>}
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return <><dt>{name}</dt><dd>{children}</dd></>;
}

function noiseSaid(noise: Noise): string {
  if (noise.examples === null) return `unavailable: ${noise.unavailable ?? "nothing was measured"}; Brain keeps the global batch`;
  const scale = `${quantity(noise.examples)} examples (${quantity(noise.low)} to ${quantity(noise.high)})`;
  if (noise.batch === null) return scale;
  return `${scale}; at ${quantity(noise.batch)} examples a step, an example is worth ${percent(noise.efficiency)} of an example at ${quantity(noise.first_batch)}`;
}

function toldBatch(told: ToldBatch): string {
  const parts = told.accumulation > 1 ? `${told.accumulation} × ${told.local_batch}` : `${told.local_batch}`;
  const rate = told.learning_rate_scale === 1 ? "" : `, learning rate × ${fixed(told.learning_rate_scale, 2)}`;
  const answer = told.taken === null ? "not measured yet" : told.taken ? "the script uses this batch" : "the script uses another batch";
  return `${fixed(told.examples)} examples a step, ${parts} a worker${rate}; ${answer}. ${told.reason ?? "The job declares this batch."}`;
}

function told(found: Calibrated): string {
  const inside = Math.round(found.coverage * found.count);
  const range = `${percent(found.coverage_low)} to ${percent(found.coverage_high)}`;
  return `${inside} of ${count(found.count, "promise")} held ${found.count === 1 ? "its" : "their"} band (90 % interval of this share: ${range}). On average, the measured throughput differs from the promised one by ${change(Math.exp(found.bias) - 1)}.`;
}

function trialSaid(trial: FreeTrial): string {
  const parts = count(trial.accumulation, "micro-batch", "micro-batches");
  return `Two minutes with ${parts} of ${fixed(trial.local_batch)} examples a step would remove ${percent(trial.learned)} of the uncertainty about ${count(trial.replicas, "replica")}, without a restart.`;
}
