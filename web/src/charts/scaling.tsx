/** The model's curve over the sizes a job may have: observed, promised, here, recommended. */
import { useRef } from "preact/hooks";
import type { Scaling, WhatIf } from "../api/types.ts";
import { useWidth } from "../ui/width.ts";
import { compared, fixed, uncertainty } from "../words/format.ts";
import { tickDecimals, valueTicks } from "../words/ticks.ts";

const HEIGHT = 232;
const EDGE = { left: 46, right: 14, top: 16, bottom: 56 };
/** A line that is shorter than its label says nothing: with one size, or at the largest. */
const LABEL = 48;

interface ScalingProps {
  scaling: Scaling;
  unit: string;
  chosen: number | null;
  onChoose: (replicas: number) => void;
}

export function ScalingCurve({ scaling, unit, chosen, onChoose }: ScalingProps) {
  const host = useRef<HTMLDivElement>(null);
  const width = Math.max(280, useWidth(host));
  return (
    <div ref={host} class="scaling">
      <Curve scaling={scaling} unit={unit} width={width} chosen={chosen} onChoose={onChoose} />
      <p class="cap12">{scaling.basis}</p>
    </div>
  );
}

function Curve({ scaling, unit, width, chosen, onChoose }: ScalingProps & { width: number }) {
  const { sizes, current, recommended } = scaling;
  const known = sizes.filter((one) => one.prediction || one.measured);
  const values = known.flatMap(({ prediction, measured }) => [prediction?.high ?? 0, measured?.high ?? 0]);
  // Headroom for the words beside the highest point.
  const ticks = known.length > 0 ? valueTicks(1.1 * Math.max(...values, 0)) : [0];
  const high = ticks.at(-1) || 1;
  const [first, last] = [sizes[0]?.replicas ?? 1, sizes.at(-1)?.replicas ?? 1];
  const x = (replicas: number): number =>
    EDGE.left + 16 + ((replicas - first) / (last - first || 1)) * (width - EDGE.left - EDGE.right - 32);
  const y = (value: number): number => EDGE.top + (1 - value / high) * (HEIGHT - EDGE.top - EDGE.bottom);
  const base = HEIGHT - EDGE.bottom;
  const here = sizes.find(({ replicas }) => replicas === current);
  const wish = recommended === current ? undefined : sizes.find(({ replicas }) => replicas === recommended);
  return (
    <svg class="c" width={width} height={HEIGHT} role="img" aria-label={spoken(scaling, unit)}>
      {ticks.map((tick) => (
        <g key={tick}>
          <line class={tick === 0 ? "base" : "grid"} x1={EDGE.left} x2={width - EDGE.right} y1={y(tick)} y2={y(tick)} />
          <text class="ax e" x={EDGE.left - 8} y={y(tick) + 4}>{fixed(tick, tickDecimals(ticks[1] ?? 1))}</text>
        </g>
      ))}
      {known.length === 0 && <text class="none m" x={(EDGE.left + width) / 2} y={HEIGHT / 2}>no curve yet, because no size is known</text>}
      <Promise sizes={sizes} x={x} y={y} />
      <Linear here={here} last={last} high={high} x={x} y={y} />
      {sizes.map((one) => one.measured && (
        <circle key={one.replicas} class="dot" cx={x(one.replicas)} cy={y(one.measured.examples_per_second)} r="2.5" />
      ))}
      {here && middle(here) !== null && <Here one={here} x={x} y={y} low={wish !== undefined && wish.replicas > current} />}
      {wish && wish.prediction && <Wish one={wish} x={x} y={y} edge={width - EDGE.right} base={base} />}
      {sizes.map((one) => (
        <Size key={one.replicas} one={one} scaling={scaling} x={x(one.replicas)} y={base} chosen={chosen === one.replicas} onChoose={onChoose} />
      ))}
      {sizes.length > 1 && <text class="ax" x="0" y={base + 36}>adds</text>}
      <text class="ax e" x={width - EDGE.right} y={base + 52}>
        {sizes.length > 1 ? "replicas; adds: gain of that step, % of the first" : "replicas; its bounds leave one size"}
      </text>
    </svg>
  );
}

type Scale = (value: number) => number;

const middle = (one: WhatIf): number | null =>
  (one.measured ?? one.prediction)?.examples_per_second ?? null;

function spoken({ current, recommended, sizes }: Scaling, unit: string): string {
  const told = sizes.map((one) => `${one.replicas}: ${compared(middle(one))}`).join(", ");
  return `${unit} by replicas: ${told}; now ${current}, recommended ${recommended}`;
}

function Linear({ here, last, high, x, y }: { here: WhatIf | undefined; last: number; high: number; x: Scale; y: Scale }) {
  const value = here && middle(here);
  if (!here || !value) return null;
  const each = value / here.replicas;
  const end = Math.min(last, high / each);
  if (x(end) - x(here.replicas) < LABEL) return null;
  return (
    <g>
      <line class="ideal" x1={x(here.replicas)} y1={y(value)} x2={x(end)} y2={y(end * each)} />
      <text class="ax e" x={x(end) - 8} y={y(end * each) + 4}>linear</text>
    </g>
  );
}

/** Band and dashed centre; sizes without an answer interrupt both. */
function Promise({ sizes, x, y }: { sizes: readonly WhatIf[]; x: Scale; y: Scale }) {
  const known = sizes.flatMap(({ replicas, prediction }) => (prediction ? [{ replicas, ...prediction }] : []));
  if (known.length === 0) return null;
  const line = (pick: (one: (typeof known)[0]) => number) => known.map((one) => `${x(one.replicas)} ${y(pick(one))}`);
  const upper = line((one) => one.high);
  const lower = line((one) => one.low).reverse();
  return (
    <g>
      <path class="band" d={`M${[...upper, ...lower].join("L")}Z`} />
      <path class="pr" d={`M${line((one) => one.examples_per_second).join("L")}`} />
    </g>
  );
}

function Here({ one, x, y, low }: { one: WhatIf; x: Scale; y: Scale; low: boolean }) {
  const value = middle(one) ?? 0;
  const left = x(one.replicas) - 12;
  const fits = left > EDGE.left + 70;
  const at = fits ? { x: left, y: y(value) - 21 } : { x: x(one.replicas) - 6, y: y(value) + (low ? 22 : -26) };
  return (
    <g>
      <circle class="halo" cx={x(one.replicas)} cy={y(value)} r="6.5" />
      <text class={`rd ${fits ? "e" : ""}`} x={at.x} y={at.y}>{compared(value)}</text>
      <text class={`lb ${fits ? "e" : ""}`} x={at.x} y={at.y + 13}>you are here</text>
    </g>
  );
}

function Wish({ one, x, y, edge, base }: { one: WhatIf; x: Scale; y: Scale; edge: number; base: number }) {
  const value = one.prediction;
  if (!value) return null;
  const [cx, cy] = [x(one.replicas), y(value.examples_per_second)];
  const flip = cx + 84 > edge;
  // Under the band, so that neither lies on the other.
  const under = Math.min(base - 18, Math.max(cy, y(value.low)) + 16);
  return (
    <g>
      <path class="bd" d={`M${cx} ${cy - 6}l6 6-6 6-6-6Z`} />
      <text class={`btb ${flip ? "e" : ""}`} x={flip ? cx + 10 : cx - 4} y={under}>
        {compared(value.examples_per_second)}<tspan class="reg"> {uncertainty(value)}</tspan>
      </text>
      <text class={`bt ${flip ? "e" : ""}`} x={flip ? cx + 10 : cx - 4} y={under + 13}>recommended</text>
    </g>
  );
}

interface SizeProps {
  one: WhatIf;
  scaling: Scaling;
  x: number;
  y: number;
  chosen: boolean;
  onChoose: (replicas: number) => void;
}

function Size({ one, scaling, x, y, chosen, onChoose }: SizeProps) {
  const { replicas } = one;
  const kind = replicas === scaling.recommended && replicas !== scaling.current ? "btb" : replicas === scaling.current ? "rd" : "ax";
  return (
    <g onClick={() => onChoose(replicas)} class="size">
      <rect class={chosen ? "wash on" : "wash"} x={x - 13} y={y + 4} width="26" height="38" rx="3" />
      <text class={`${kind} m`} x={x} y={y + 18}>{replicas}</text>
      <text class="ax m" x={x} y={y + 36}>{adds(one, scaling.sizes)}</text>
    </g>
  );
}

/** What a step adds, in per cent of what the smallest size gives per replica; a dash where unknown. */
function adds(one: WhatIf, sizes: readonly WhatIf[]): string {
  const before = sizes[sizes.indexOf(one) - 1];
  const first = sizes[0];
  const [value, previous, base] = [middle(one), before && middle(before), first && middle(first)];
  if (!before || !first) return "";
  if (value == null || previous == null || !base) return one.undetermined ? "?" : "—";
  const each = (value - previous) / (one.replicas - before.replicas);
  return fixed((each / (base / first.replicas)) * 100);
}
