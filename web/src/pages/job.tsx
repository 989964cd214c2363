/** One job: what it does now, what Brain says of it, what happened. */
import { type Signal, useSignal } from "@preact/signals";
import * as calls from "../api/calls.ts";
import type { JobDetail, JobView, PlanView } from "../api/types.ts";
import { expected } from "../charts/freshness.ts";
import { axis, ChartStack } from "../charts/stack.tsx";
import { RankStrip } from "../charts/ranks.tsx";
import { Card } from "../job/card.tsx";
import { Failure, hangs, stops } from "../job/failure.tsx";
import { Conditions } from "../job/conditions.tsx";
import { Head } from "../job/head.tsx";
import { Logs } from "../job/logs.tsx";
import { Model } from "../job/model.tsx";
import { PlanList } from "../job/plans.tsx";
import { Sizes } from "../job/sizes.tsx";
import { Spec } from "../job/spec.tsx";
import { Timeline } from "../job/timeline.tsx";
import { jobs, nameOf } from "../state/fleet.ts";
import { now } from "../state/now.ts";
import type { News } from "../state/link.ts";
import { type Resource, useResource } from "../state/resource.ts";
import { link, route, setQuery } from "../state/route.ts";
import { Heading, Message, Skeleton, Trouble } from "../ui/parts.tsx";
import { Shell } from "../ui/shell.tsx";
import { clock, duration } from "../words/format.ts";

const TABS = [
  { id: "", title: "Now" },
  { id: "timeline", title: "Timeline" },
  { id: "logs", title: "Logs" },
  { id: "spec", title: "Spec" },
];

export function Job() {
  const [name = "", tab = ""] = route.value.rest;
  // Another job may come by the name of this one.
  const concerns = ({ kind, job }: News): boolean => (job === null && !kind.startsWith("list.")) || job === detail.state.peek().value?.job.id || kind === "job.Queued";
  const detail: Resource<JobDetail> = useResource(`job ${name}`, () => calls.job(name), { concerns });
  const plans = useResource(`plans ${name}`, () => calls.every((page) => calls.plansOf(name, page)), { concerns: (news) => news.kind !== "measured" && news.kind !== "row" && concerns(news) });
  const { value, failure, at } = detail.state.value;
  const known = plans.value ?? [];
  return (
    <Shell
      crumbs={<><a class="up2" href={link("jobs")}>Jobs</a><i>/</i><b>{value?.job.name ?? nameOf(name)}</b></>}
      tabs={<Tabs name={name} tab={tab} />}
    >
      {failure && !value && (failure.kind === "missing" ? <Missing name={name} detail={failure.detail} /> : <Trouble failure={failure} what="job to show" />)}
      {!value && !failure && <Skeleton label="Loading the job" rows={8} />}
      {value && <Tab tab={tab} detail={value} at={at} plans={known} onChange={() => void Promise.all([detail.refresh(), plans.refresh()])} />}
    </Shell>
  );
}

/** No job of the default project; those of others are known by their ids. */
function Missing({ name, detail }: { name: string; detail: string }) {
  const namesakes = (jobs.value ?? []).filter((job) => job.name === name);
  if (namesakes.length === 0) return <Trouble failure={{ kind: "missing", detail }} what="job" />;
  return (
    <Message kind="quiet" icon="cancelled" title="Project default has no such job.">
      {namesakes.map((job) => <span key={job.id}><a class="link" href={link("jobs", job.id)}>{job.name} of project {job.project}</a>, {job.state}. </span>)}
    </Message>
  );
}

function Tabs({ name, tab }: { name: string; tab: string }) {
  return (
    <nav class="tabs" aria-label="Views of the job">
      {TABS.map(({ id, title }) => (
        <a key={id} href={id ? link("jobs", name, id) : link("jobs", name)} aria-current={tab === id ? "page" : undefined}>{title}</a>
      ))}
    </nav>
  );
}

interface TabProps {
  tab: string;
  detail: JobDetail;
  /** When the detail came, milliseconds. */
  at: number;
  plans: readonly PlanView[];
  onChange: () => void;
}

function Tab({ tab, detail, at, plans, onChange }: TabProps) {
  switch (tab) {
    case "timeline":
      return <><Head detail={detail} /><Timeline job={detail.job} worlds={detail.worlds} /></>;
    case "logs":
      return <><Head detail={detail} /><Logs job={detail.job} replicas={detail.replicas} /></>;
    case "spec":
      return <><Head detail={detail} /><Spec detail={detail} /></>;
    default:
      return <Now detail={detail} at={at} plans={plans} onChange={onChange} />;
  }
}

const RANGES = [
  { text: "15 min", seconds: 900 },
  { text: "1 h", seconds: 3600 },
  { text: "6 h", seconds: 21_600 },
  { text: "24 h", seconds: 86_400 },
];

function Now({ detail, at, plans, onChange }: Omit<TabProps, "tab">) {
  const { job, worlds } = detail;
  const urgent = stops(detail);
  const range = RANGES.find(({ text }) => text === route.value.query.get("range")) ?? RANGES[1];
  const seconds = range?.seconds ?? 3600;
  // A signal: an axis that moves draws nothing but what depends on it.
  const end = useSignal<number | null>(null);
  return (
    <>
      <Head detail={detail} />
      <div class="jobgrid">
        <section class="charts">
          <Stale detail={detail} at={at} />
          <Conditions job={job} />
          <Heading
            title="Measured"
            sub={<Stretch job={job} range={seconds} end={end} />}
            more={<><ToEnd job={job} end={end} /> <span class="seg" role="group" aria-label="Length of the time axis">{RANGES.map(({ text }) => <button type="button" key={text} aria-pressed={text === range?.text} onClick={() => setQuery({ range: text })}>{text}</button>)}</span></>}
          />
          <ChartStack job={job} worlds={worlds} plans={plans} range={seconds} end={end} />
          <div class="lower">
            <Sizes job={job} />
            <Workers detail={detail} />
          </div>
        </section>
        <section class="side">
          {urgent && <Failure worlds={worlds} urgent />}
          <Card job={job} world={detail.world} plans={plans} onChange={onChange} />
          {!urgent && <Failure worlds={worlds} urgent={false} />}
          <PlanList plans={plans} />
          <Model job={job} />
        </section>
      </div>
    </>
  );
}

/** From when to when the time axis goes. */
function Stretch({ job, range, end }: { job: JobView; range: number; end: Signal<number | null> }) {
  const { since, until } = axis(job, range, end.value);
  return <>{clock(since * 1000, now.value)} – {clock(until * 1000, now.value)}</>;
}

/** The way back of a time axis that was moved. */
function ToEnd({ job, end }: { job: JobView; end: Signal<number | null> }) {
  return end.value === null ? null : <button type="button" class="chip" onClick={() => (end.value = null)}>{job.finished_at ? "To its end" : "To now"}</button>;
}

function Stale({ detail: { job, world }, at }: { detail: JobDetail; at: number }) {
  const age = (job.telemetry_age_seconds ?? 0) + Math.max(0, now.value - at) / 1000;
  if (job.telemetry_age_seconds === null || age < job.stale_after_seconds || !expected(job)) return null;
  if (hangs(job))
    return (
      <Message kind="bad" icon="warning" title={`Hung: no step for ${duration(age)}.`}>
        The processes run, but no worker makes progress. The finding, with the stacks of the ranks, is under “What failed”.
      </Message>
    );
  const nodes = [...new Set(world?.members.map((member) => member.node))].join(", ");
  return (
    <Message icon="holding" title={`Telemetry is ${duration(age)} old: Brain changes nothing.`}>
      {nodes ? `${nodes} last reported at ${clock(now.value - age * 1000, now.value)}. ` : ""}
      The job may well be running; Brain cannot see it, so no size changes until samples are fresh again.
    </Message>
  );
}

function Workers({ detail: { job } }: { detail: JobDetail }) {
  const found = useResource(`workers ${job.id}`, async () => (await calls.workers(job.id)).items, {
    quiet: 4, concerns: (news) => news.job === job.id,
  });
  const { value, failure } = found.state.value;
  return (
    <section>
      <Heading title="Workers" sub="median step time, last minute or three steps" />
      {failure && !value && <Trouble failure={failure} what="workers" />}
      {value?.length === 0 && <p class="quiet">No worker completed a step in this time{job.finished_at ? ", because the job has ended" : ""}.</p>}
      {value && value.length > 0 && <RankStrip workers={value} />}
    </section>
  );
}
