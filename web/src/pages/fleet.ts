/** All pages but that of one job: one part of the script, as that one is another. */
export { Audit } from "./audit.tsx";
export { HealthPage } from "./health.tsx";
export { Inbox } from "./inbox.tsx";
export { Jobs } from "./jobs.tsx";
export { Nodes } from "./nodes.tsx";
export { Overview } from "./overview.tsx";
export { Pool } from "./pool.tsx";
