/** Throughput of the last hours on one line; gaps stay gaps, a stale end is an open dot. */
interface SparklineProps {
  values: readonly (number | null)[];
  stale?: boolean;
  ended?: boolean;
  width?: number;
}

const HEIGHT = 20;

export function Sparkline({ values, stale, ended, width = 148 }: SparklineProps) {
  const known = values.filter((value): value is number => value !== null);
  const kind = `c spark ${ended ? "off" : ""}`;
  if (known.length < 2)
    return (
      <svg class={kind} width={width} height={HEIGHT} aria-hidden="true">
        <line class="nothing" x1="0" x2={width - 4} y1="12" y2="12" />
      </svg>
    );
  const [low, high] = [Math.min(...known), Math.max(...known)];
  // Noise must not look like drama: the axis spans a fifth of the value at least.
  const span = Math.max(high - low, high * 0.2) || 1;
  const middle = (low + high) / 2;
  const x = (at: number): number => (at / (values.length - 1)) * (width - 8) + 2;
  const y = (value: number): number => HEIGHT / 2 - ((value - middle) / span) * (HEIGHT - 6);
  const last = values.findLastIndex((value) => value !== null);
  const tip = values[last] ?? 0;
  return (
    <svg class={kind} width={width} height={HEIGHT} aria-hidden="true">
      <path class="ob" d={path(values, x, y)} />
      {stale && <line class="tail" x1={x(last) + 4} x2={width} y1={y(tip)} y2={y(tip)} />}
      <circle class={stale ? "ring" : "dot"} cx={x(last)} cy={y(tip)} r={stale ? 2.2 : 1.6} />
    </svg>
  );
}

function path(
  values: readonly (number | null)[], x: (at: number) => number, y: (value: number) => number,
): string {
  let pen = "M";
  const parts: string[] = [];
  values.forEach((value, at) => {
    if (value === null) pen = "M";
    else {
      parts.push(`${pen}${x(at).toFixed(1)} ${y(value).toFixed(1)}`);
      pen = "L";
    }
  });
  return parts.join("");
}
