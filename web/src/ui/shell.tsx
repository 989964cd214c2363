/** Rail, top bar, live badge, freeze: what stands around every page. */
import type { ComponentChildren } from "preact";
import { expected } from "../charts/freshness.ts";
import { mayDecide } from "../state/access.ts";
import { askFreeze } from "../state/decide.tsx";
import { frozen, jobs, nodes, place, sampledAt, waiting } from "../state/fleet.ts";
import { heardAt, linked } from "../state/link.ts";
import { now } from "../state/now.ts";
import { link, route } from "../state/route.ts";
import { health } from "../state/session.ts";
import { nextTheme, theme } from "../state/theme.ts";
import { age, duration, seconds } from "../words/format.ts";
import { Icon } from "./icons.tsx";
import { openPalette } from "./palette.tsx";
import { Button, Message } from "./parts.tsx";
import { RAIL } from "./rail.ts";

/** A stream that said nothing for so long is stale, and so are samples: heartbeats come every 15 s. */
const SILENT_SECONDS = 20;

function Count({ page }: { page: string }) {
  const numbers: Record<string, number | undefined> = {
    jobs: jobs.value?.filter((job) => !job.finished_at).length,
    inbox: waiting.value.length || undefined,
    nodes: nodes.value?.length || undefined,
    health: health.value?.degraded.length || undefined,
  };
  const number = numbers[page];
  return number === undefined ? null : <span class={page === "inbox" ? "ct call" : "ct"}>{number}</span>;
}

function Rail() {
  const said = health.value;
  return (
    <aside class="rail">
      <a class="mark" href={link("overview")}>
        <svg viewBox="0 0 18 18" aria-hidden="true">
          <path class="halo" d="M2 12.5C5 12.5 5.5 5.5 9 5.5s4 7 7 7" />
          <path d="M2 12.5C5 12.5 5.5 5.5 9 5.5s4 7 7 7" />
        </svg>
        Brain
      </a>
      <nav aria-label="Pages">
        {RAIL.map((group) => (
          <ul key={group[0]?.page}>
            {group.map(({ page, title, icon }) => (
              <li key={page}>
                <a href={link(page)} aria-current={route.value.page === page ? "page" : undefined}>
                  <Icon name={icon} />
                  {title}
                  <Count page={page} />
                </a>
              </li>
            ))}
          </ul>
        ))}
      </nav>
      {said && (
        <dl class="where">
          <dt>Pool</dt><dd>{place.value}</dd>
          <dt>Mode</dt><dd>{said.policy_mode}</dd>
          <dt>Up for</dt><dd>{age(said.started_at, now.value)}</dd>
          <dt>You</dt><dd>{said.role}</dd>
          <dt>Theme</dt><dd><button type="button" class="plain" onClick={nextTheme}>{theme.value}</button></dd>
        </dl>
      )}
    </aside>
  );
}

export function Live() {
  const silent = (now.value - heardAt.value) / 1000;
  if (!linked.value || silent > SILENT_SECONDS)
    return <span class="live stale">reconnecting · {duration(silent)}</span>;
  if (!jobs.value) return <span class="live">live</span>;
  if (sampledAt.value === 0 || !jobs.value.some(expected)) return <span class="live">live · no samples</span>;
  const newest = Math.max(0, now.value - sampledAt.value) / 1000;
  // Samples of a slow job come once a step; they are stale after three.
  const due = Math.min(...jobs.value.filter(expected).map((job) => job.stale_after_seconds)) / 3;
  if (newest > Math.max(SILENT_SECONDS, due)) return <span class="live stale">live · samples {duration(newest)} old</span>;
  return <span class="live">live · {duration(Math.round(newest * 10) / 10)}</span>;
}

function FreezeControl() {
  return (
    <Button onClick={askFreeze} forbidden={mayDecide()}>
      <Icon name="freeze" tone={frozen.value ? "warn" : ""} />
      {frozen.value ? "Frozen" : "Freeze"}
    </Button>
  );
}

export function Shell({ crumbs, tabs, children }: { crumbs: ComponentChildren; tabs?: ComponentChildren; children: ComponentChildren }) {
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>To the page</a>
      <Rail />
      <div class="main">
        <header class="top">
          <div class="crumb"><span class="up">{place.value}</span><i class="up">/</i>{crumbs}</div>
          {tabs}
          <button type="button" class="find" onClick={openPalette}>
            <Icon name="find" /><span>Find a job, node, plan or action</span><kbd>⌘K</kbd>
          </button>
          <Live />
          <span class="mode">{seconds(now.value)}</span>
          <FreezeControl />
          <button type="button" class="btn only-s" aria-label="Find and go" onClick={openPalette}><Icon name="menu" /></button>
        </header>
        <main class="page" id="main" tabIndex={0}>
          <Banners />
          {children}
        </main>
      </div>
    </div>
  );
}

/** Trouble that concerns every page. */
function Banners() {
  const silent = (now.value - heardAt.value) / 1000;
  const standing = frozen.value;
  return (
    <>
      {!linked.value && silent > 5 && (
        <Message icon="silent" title={`This page is ${duration(silent)} old: the service does not answer.`}>
          Jobs keep training and collectors keep their samples. This page reconnects by itself.
        </Message>
      )}
      {standing && (
        <Message kind="quiet" icon="freeze" title={`Frozen by ${standing.by}: no plan is applied.`}>
          {standing.why ? `${standing.why.replace(/[.!?]$/, "")}.` : "No reason was given."} Jobs keep training and healing.
        </Message>
      )}
    </>
  );
}
