/** The pages, as the rail and the palette list them. */
import type { IconName } from "./icons.tsx";

interface Stop {
  page: string;
  title: string;
  icon: IconName;
}

export const RAIL: Stop[][] = [
  [
    { page: "overview", title: "Overview", icon: "overview" },
    { page: "jobs", title: "Jobs", icon: "jobs" },
    { page: "inbox", title: "Inbox", icon: "inbox" },
    { page: "nodes", title: "Nodes", icon: "nodes" },
    { page: "pool", title: "Pool", icon: "pool" },
  ],
  [
    { page: "audit", title: "Audit", icon: "audit" },
    { page: "health", title: "Health", icon: "health" },
  ],
];
