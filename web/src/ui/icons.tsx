/** Three shapes: jobs are circles, plans are diamonds, machines are squares. */
import type { ComponentChildren } from "preact";

export type Tone = "mut" | "dim" | "brain" | "good" | "warn" | "bad" | "ghost" | "";

const circle = <circle cx="8" cy="8" r="5.6" />;
const diamond = <path d="M8 1.9 14.1 8 8 14.1 1.9 8Z" />;
const square = <rect x="2.4" y="2.4" width="11.2" height="11.2" rx="1.2" />;
const solid = <path class="fill" d="M8 1.2 14.8 8 8 14.8 1.2 8Z" />;

const SHAPES = {
  running: <>{circle}<circle class="fill" cx="8" cy="8" r="2.6" /></>,
  changing: <>{circle}<path d="M5 8h6M6.6 6.3 5 8l1.6 1.7M9.4 6.3 11 8 9.4 9.7" /></>,
  queued: <circle cx="8" cy="8" r="5.6" stroke-dasharray="2.6 1.8" />,
  starting: <><circle cx="8" cy="8" r="5.6" stroke-dasharray="2.6 1.8" /><circle class="fill" cx="8" cy="8" r="1.8" /></>,
  warning: <><path d="M8 2.4 14.2 13.4H1.8Z" /><path d="M8 6.6v3.2M8 11.6v.1" /></>,
  holding: <>{circle}<path d="M6.6 6.2v3.6M9.4 6.2v3.6" /></>,
  ended: <>{circle}<path d="m5.6 8.2 1.7 1.7 3.2-3.6" /></>,
  failed: <>{circle}<path d="m6.1 6.1 3.8 3.8m0-3.8L6.1 9.9" /></>,
  cancelled: <>{circle}<path d="M4.2 11.8 11.8 4.2" /></>,
  proposed: <>{diamond}<circle class="fill" cx="8" cy="8" r="1.6" /></>,
  approved: <>{diamond}<path class="fill" d="M8 1.9V14.1L1.9 8Z" /></>,
  applying: <>{diamond}<path d="M5.6 8h4.6M8.6 6.2 10.4 8 8.6 9.8" /></>,
  applied: <>{diamond}<path d="M8 5.4V8.2L9.7 9.2" /></>,
  verified: <>{solid}<path class="knock" d="m5.3 8.2 1.9 1.9 3.5-4" /></>,
  "fell-short": <>{solid}<path class="knock" d="M8 4.9v5.6M5.8 8.5 8 10.7l2.2-2.2" /></>,
  inconclusive: <>{diamond}<path d="M5.2 8.5c.9-1.4 1.9-1.4 2.8-.5s1.9.9 2.8-.5" /></>,
  "rolled-back": <>{diamond}<path d="M10.2 9.9C10.2 7.6 8.6 7 5.9 7M7.5 5.3 5.8 7l1.7 1.7" /></>,
  rejected: <>{diamond}<path d="m6.3 6.3 3.4 3.4m0-3.4L6.3 9.7" /></>,
  superseded: <path d="M6 3.4 10.6 8 6 12.6 1.4 8ZM9.4 3.9 10 3.4 14.6 8 10 12.6l-.6-.5" />,
  expired: <path d="M8 1.9 14.1 8 8 14.1 1.9 8Z" stroke-dasharray="2.5 1.9" />,
  "plan-failed": <>{diamond}<path d="M8 5.2v3.4M8 10.6v.1" /></>,
  hold: <>{diamond}<path d="M6.8 6.3v3.4M9.2 6.3v3.4" /></>,
  ready: <>{square}<path d="M5.2 6h5.6M5.2 8.4h5.6M5.2 10.8h3.2" /></>,
  drained: <rect x="2.4" y="2.4" width="11.2" height="11.2" rx="1.2" stroke-dasharray="2.6 1.9" />,
  silent: <>{square}<path d="M8 5v3.6M8 10.9v.1" /></>,
  overview: <><path d="M2.6 11.5a5.6 5.6 0 1 1 10.8 0" /><path d="m8 10 2.4-3" /></>,
  jobs: <path d="M2.4 4.2h11.2M2.4 8h11.2M2.4 11.8h6.8" />,
  inbox: <path d="M2.2 9.4 4.3 3.4h7.4l2.1 6v3.2H2.2ZM2.2 9.4h3.4l1 1.8h2.8l1-1.8h3.4" />,
  nodes: <path d="M2.5 2.5H7V7H2.5ZM9 2.5h4.5V7H9ZM2.5 9H7v4.5H2.5ZM9 9h4.5v4.5H9Z" />,
  pool: <path d="M2.4 2.4h11.2v11.2H2.4ZM8.6 2.4v11.2M8.6 8.8h5" />,
  audit: <path d="M3.4 2.2h9.2v11.6H3.4ZM5.8 5.4h4.4M5.8 8h4.4M5.8 10.6h2.4" />,
  health: <path d="M1.6 8.4h3l1.8-4.8 3 8.8 1.8-4h3.2" />,
  find: <><circle cx="7" cy="7" r="4" /><path d="m10 10 3.5 3.5" /></>,
  freeze: <path d="M8 1.8v12.4M2.6 4.9l10.8 6.2M13.4 4.9 2.6 11.1" />,
  copy: <path d="M5.6 5.6h7.2v7.2H5.6ZM10.4 5.6V3.2H3.2v7.2h2.4" />,
  clock: <>{circle}<path d="M8 4.8V8l2.2 1.4" /></>,
  menu: <path d="M2.4 4.4h11.2M2.4 8h11.2M2.4 11.6h11.2" />,
} satisfies Record<string, ComponentChildren>;

export type IconName = keyof typeof SHAPES;

export function Icon({ name, tone = "" }: { name: IconName; tone?: Tone }) {
  return (
    <svg class={`ic ${tone}`} viewBox="0 0 16 16" aria-hidden="true">
      {SHAPES[name]}
    </svg>
  );
}

/** The same shape inside a larger drawing, its centre at (x, y). */
export function Mark({ name, x, y, tone = "" }: { name: IconName; x: number; y: number; tone?: Tone }) {
  return (
    <svg class={`ic ${tone}`} x={x - 8} y={y - 8} width="16" height="16" viewBox="0 0 16 16">
      {SHAPES[name]}
    </svg>
  );
}
