import { render } from "preact";
import { useEffect } from "preact/hooks";
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
import { Job } from "./pages/job.tsx";
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
import { Empty } from "./ui/parts.tsx";
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
      return rest[0] ? <Job key={rest[0]} /> : <Jobs />;
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
