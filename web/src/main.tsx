import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import "./styles/fonts.css";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/parts.css";
import "./styles/tables.css";
import "./styles/job.css";
import "./styles/charts.css";
import "./styles/phone.css";
import { SignIn } from "./pages/signin.tsx";
import { nameOf, startFleet } from "./state/fleet.ts";
import { startKeys, useKeys } from "./state/keys.ts";
import { startLink } from "./state/link.ts";
import { startClock } from "./state/now.ts";
import { go, link, route, startRoute } from "./state/route.ts";
import { refusedLink, session, startSession } from "./state/session.ts";
import { startTheme } from "./state/theme.ts";
import { AskDialog, Notice, tell } from "./ui/ask.tsx";
import { Help, openHelp } from "./ui/help.tsx";
import { openPalette, Palette } from "./ui/palette.tsx";
import { Empty, Message, Skeleton } from "./ui/parts.tsx";
import { Shell } from "./ui/shell.tsx";

const GLOBAL = [
  { keys: "g o", does: "go to the overview", run: () => go("overview") },
  { keys: "g j", does: "go to jobs", run: () => go("jobs") },
  { keys: "g i", does: "go to the inbox", run: () => go("inbox") },
  { keys: "g n", does: "go to nodes", run: () => go("nodes") },
  { keys: "g p", does: "go to the pool", run: () => go("pool") },
  { keys: "?", does: "show these keys", run: openHelp },
];

function App() {
  switch (session.value.kind) {
    case "starting":
      return null;
    case "ready":
      return <SignedIn />;
    default:
      return <SignIn />;
  }
}

function SignedIn() {
  useKeys(GLOBAL, []);
  useEffect(() => {
    const stops = [startLink(), startFleet()];
    // The other part is there once it is opened, unless the service went away; then it is asked for again.
    opened().fetch().then(() => Promise.all([fleetPages.fetch(), jobPage.fetch()])).catch(() => undefined);
    if (refusedLink.peek()) tell(`${refusedLink.peek()} Your earlier session is still valid.`);
    return () => stops.forEach((stop) => stop());
  }, []);
  return (
    <>
      <Page />
      <AskDialog />
      <Palette />
      <Help />
      <Notice />
    </>
  );
}

/** A part of the script that comes behind the frame of all pages. */
class Part<T> {
  readonly code = signal<T | null>(null);

  constructor(private readonly load: () => Promise<T>) {}

  async fetch(): Promise<void> {
    this.code.value ??= await this.load();
  }
}

const fleetPages = new Part(() => import("./pages/fleet.ts"));
/** With its charts the page of a job is as much script as all others. */
const jobPage = new Part(() => import("./pages/job.tsx"));

const opened = (): Part<unknown> => (route.value.page === "jobs" && route.value.rest[0] ? jobPage : fleetPages);

function Coming({ part }: { part: Part<unknown> }) {
  const [failed, setFailed] = useState(false);
  useEffect(() => void part.fetch().catch(() => setFailed(true)), [part]);
  return (
    <Shell crumbs={<h1>{titleOf(route.value.page, "")}</h1>}>
      {failed
        ? <Message icon="silent" title="This page did not load: the service does not answer, or was upgraded.">Reload the page.</Message>
        : <Skeleton label="Loading the page" rows={8} />}
    </Shell>
  );
}

/** What stands in the browser's tab: a job by its name, whatever else by its page. */
function titleOf(page: string, about: string): string {
  const title = page.charAt(0).toUpperCase() + page.slice(1);
  if (about === "") return title;
  return page === "jobs" ? `${nameOf(about)}, job` : `${title} ${about}`;
}

function Page() {
  const { page, rest } = route.value;
  document.title = `${titleOf(page, rest[0] ?? "")} – Brain`;
  const [fleet, job] = [fleetPages.code.value, jobPage.code.value];
  if (page === "jobs" && rest[0]) return job ? <job.Job key={rest[0]} /> : <Coming part={jobPage} />;
  if (!fleet) return <Coming part={fleetPages} />;
  switch (page) {
    case "overview":
      return <fleet.Overview />;
    case "jobs":
      return <fleet.Jobs />;
    case "inbox":
      return <fleet.Inbox />;
    case "nodes":
      return <fleet.Nodes />;
    case "pool":
      return <fleet.Pool key={rest[0] ?? ""} />;
    case "audit":
      return <fleet.Audit />;
    case "health":
      return <fleet.HealthPage />;
    default:
      return (
        <Shell crumbs={<h1>{page}</h1>}>
          <Empty title={`There is no page ${page}.`}>Go to the <a class="link" href={link("overview")}>overview</a>.</Empty>
        </Shell>
      );
  }
}

startTheme();
startRoute();
startClock();
startKeys(openPalette);
opened().fetch().catch(() => undefined); // beside the question who is signed in; the page asks again
void startSession();
const root = document.getElementById("app");
if (root) render(<App />, root);
