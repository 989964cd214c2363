/** The model's curve over the sizes a job may have: observed, promised, here, recommended. */
import { useRef } from "preact/hooks";
import type { Scaling, WhatIf } from "../api/types.ts";
import { useWidth } from "../ui/width.ts";
import { compared, fixed, uncertainty } from "../words/format.ts";
import { type Box, cover, firstFree, placeName, textWidth } from "../words/labels.ts";
import { tickDecimals, valueTicks } from "../words/ticks.ts";

const HEIGHT = 232;
const EDGE = { left: 46, right: 14, top: 16, bottom: 56 };
/** Room of a size and its gain on the axis. */
const SIZE = 28;

interface ScalingProps {
  scaling: Scaling;
  unit: string;
  chosen: number | null;
  ended: boolean;
  onChoose: (replicas: number) => void;
}

export function ScalingCurve({ scaling, unit, chosen, ended, onChoose }: ScalingProps) {
  const host = useRef<HTMLDivElement>(null);
  const width = Math.max(280, useWidth(host));
  return (
    <div ref={host} class="scaling">
      <Curve scaling={scaling} unit={unit} width={width} chosen={chosen} ended={ended} onChoose={onChoose} />
      <p class="cap12">{scaling.basis}</p>
    </div>
  );
}

function Curve({ scaling, unit, width, chosen, ended, onChoose }: ScalingProps & { width: number }) {
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
      {known.length === 0 && <text class="none m" x={(EDGE.left + width) / 2} y={HEIGHT / 2}>no curve yet, because no size was measured or predicted</text>}
      <Promise sizes={sizes} x={x} y={y} />
      {sizes.map((one) => one.measured && (
        <circle key={one.replicas} class="dot" cx={x(one.replicas)} cy={y(one.measured.examples_per_second)} r="2.5" />
      ))}
      <Words here={here} wish={wish} last={last} high={high} x={x} y={y} within={{ x: EDGE.left, y: 0, width: width - EDGE.left, height: base }} ended={ended} />
      {legible(sizes, [current, recommended, chosen], x).map((one) => (
        <Size key={one.replicas} one={one} scaling={scaling} x={x(one.replicas)} y={base} chosen={chosen === one.replicas} onChoose={onChoose} />
      ))}
      {sizes.length > 1 && <text class="ax" x="0" y={base + 36}>adds</text>}
      <text class="ax e" x={width - EDGE.right} y={base + 52}>
        {sizes.length > 1 ? "replicas; adds: gain per added replica, % of the first" : "replicas; the bounds allow only this size"}
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

/** Where the line of a perfect gain leaves the chart; null where it would be shorter than its name. */
function linear(here: WhatIf | undefined, last: number, high: number, x: Scale, y: Scale) {
  const value = here && middle(here);
  if (!here || !value) return null;
  const each = value / here.replicas;
  const end = Math.min(last, high / each);
  const from = { x: x(here.replicas), y: y(value) };
  return x(end) - from.x < 48 ? null : { from, to: { x: x(end), y: y(end * each) } };
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

interface WordsProps {
  here: WhatIf | undefined;
  wish: WhatIf | undefined;
  last: number;
  high: number;
  x: Scale;
  y: Scale;
  within: Box;
  ended: boolean;
}

/** The size that runs, the recommended one and the perfect gain, named where no name covers another. */
function Words({ here, wish, last, high, x, y, within, ended }: WordsProps) {
  const label = placeName(ended);
  const value = here ? middle(here) : null;
  const at = here && value !== null ? { x: x(here.replicas), y: y(value) } : null;
  const promise = wish?.prediction;
  const to = wish && promise ? { x: x(wish.replicas), y: y(promise.examples_per_second) } : null;
  const taken: Box[] = [at, to].flatMap((spot) => (spot ? [{ x: spot.x - 7, y: spot.y - 7, width: 14, height: 14 }] : []));
  const name = (spot: { x: number; y: number } | null, text: string, gaps: readonly number[]): (Box & { end: boolean }) | undefined => {
    if (!spot) return undefined;
    const size = { width: textWidth(text), height: 28 };
    const found = firstFree(gaps.flatMap((gap) => {
      const upper = gap < 0 ? spot.y + gap - size.height : spot.y + gap;
      const left = { ...size, x: spot.x - 10 - size.width, y: upper, end: true };
      const right = { ...size, x: spot.x + (Math.abs(gap) > 6 ? -4 : 12), y: upper, end: false };
      return gap < 0 ? [left, right] : [right, left];
    }), taken, within);
    if (found) taken.push(found);
    return found;
  };
  const up = to && at && to.y > at.y ? -6 : -4;
  const reason = promise ? `${compared(promise.examples_per_second)} ${uncertainty(promise)}` : "";
  const hereName = name(at, label, [up, -20, 8, 24, 40]);
  // Under the band, so that neither lies on the other.
  const under = promise && to ? Math.max(0, y(promise.low) - to.y) + 5 : 8;
  const wishName = name(to, reason.length > 11 ? reason : "recommended", [under, 8, -8, 24, 40, -24, -40]);
  const line = linear(here, last, high, x, y);
  const lineName = line && { x: line.to.x - 8 - textWidth("linear"), y: line.to.y - 7, width: textWidth("linear"), height: 14 };
  const anchor = (box: Box & { end: boolean }) => (box.end ? box.x + box.width : box.x);
  return (
    <g>
      {line && <line class="ideal" x1={line.from.x} y1={line.from.y} x2={line.to.x} y2={line.to.y} />}
      {lineName && !taken.some((one) => cover(one, lineName)) && <text class="ax e halo-t" x={line.to.x - 8} y={line.to.y + 4}>linear</text>}
      {at && <circle class="halo" cx={at.x} cy={at.y} r="6.5" />}
      {to && <path class="bd" d={`M${to.x} ${to.y - 6}l6 6-6 6-6-6Z`} />}
      {hereName && (
        <>
          <text class={`rd ${hereName.end ? "e" : ""}`} x={anchor(hereName)} y={hereName.y + 11}>{compared(value)}</text>
          <text class={`lb ${hereName.end ? "e" : ""}`} x={anchor(hereName)} y={hereName.y + 24}>{label}</text>
        </>
      )}
      {wishName && promise && (
        <>
          <text class={`btb ${wishName.end ? "e" : ""}`} x={anchor(wishName)} y={wishName.y + 11}>
            {compared(promise.examples_per_second)}<tspan class="reg"> {uncertainty(promise)}</tspan>
          </text>
          <text class={`bt ${wishName.end ? "e" : ""}`} x={anchor(wishName)} y={wishName.y + 24}>recommended</text>
        </>
      )}
    </g>
  );
}

/** Sizes whose numbers fit beside each other on the axis, the important ones before the others. */
function legible(sizes: readonly WhatIf[], important: readonly (number | null)[], x: Scale): WhatIf[] {
  const rank = ({ replicas }: WhatIf): number => (important.includes(replicas) ? important.indexOf(replicas) : important.length);
  const found: WhatIf[] = [];
  for (const one of [...sizes].sort((one, other) => rank(one) - rank(other) || one.replicas - other.replicas))
    if (found.every(({ replicas }) => Math.abs(x(replicas) - x(one.replicas)) >= SIZE)) found.push(one);
  return found.sort((one, other) => one.replicas - other.replicas);
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
