import { signal } from "@preact/signals";
import { type ComponentType, render } from "preact";
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
import { Audit } from "./pages/audit.tsx";
import { HealthPage } from "./pages/health.tsx";
import { Inbox } from "./pages/inbox.tsx";
import { Jobs } from "./pages/jobs.tsx";
import { Nodes } from "./pages/nodes.tsx";
import { Overview } from "./pages/overview.tsx";
import { Pool } from "./pages/pool.tsx";
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
    loadJob().catch(() => undefined); // asked for again by the first job that is opened
    if (refusedLink.peek()) tell(`${refusedLink.peek()} You were signed in before, and still are.`);
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

/** The page of a job: with its charts it is two fifths of the script, so it comes behind the first page. */
const jobPage = signal<{ Job: ComponentType } | null>(null);

async function loadJob(): Promise<void> {
  jobPage.value ??= await import("./pages/job.tsx");
}

function JobPage() {
  const [failed, setFailed] = useState(false);
  useEffect(() => void loadJob().catch(() => setFailed(true)), []);
  if (jobPage.value) return <jobPage.value.Job />;
  return (
    <Shell crumbs={<h1>Job</h1>}>
      {failed
        ? <Message icon="silent" title="The page of jobs did not come: the service is away or was upgraded.">Reload the page.</Message>
        : <Skeleton label="Loading the job" rows={8} />}
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
  switch (page) {
    case "overview":
      return <Overview />;
    case "jobs":
      return rest[0] ? <JobPage key={rest[0]} /> : <Jobs />;
    case "inbox":
      return <Inbox />;
    case "nodes":
      return <Nodes />;
    case "pool":
      return <Pool key={rest[0] ?? ""} />;
    case "audit":
      return <Audit />;
    case "health":
      return <HealthPage />;
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
void startSession();
const root = document.getElementById("app");
if (root) render(<App />, root);
