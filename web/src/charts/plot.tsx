/** uPlot as a component: measured lines over promised bands, axes from round ticks. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { paint } from "../state/theme.ts";
import { fixed } from "../words/format.ts";
import { tickDecimals, withGaps } from "../words/ticks.ts";
import { palette, type Palette } from "./colours.ts";
import type { Panel, Promised } from "./measures.ts";

/** Space around the plotting area, shared with the overlay. */
export const EDGE = { left: 46, top: 6, bottom: 6 };

export interface Frame {
  width: number;
  right: number;
  since: number;
  until: number;
  times: number[];
  /** Seconds beyond which two points are a gap. */
  gap: number;
  /** Instants at which a world formed: restart gaps are gaps. */
  breaks: number[];
}

interface PlotProps {
  panel: Panel;
  frame: Frame;
  promises: readonly Promised[];
}

export function Plot({ panel, frame, promises }: PlotProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef({ panel, frame, promises });
  latest.current = { panel, frame, promises };
  const colours = useRef<Palette | null>(null);

  useEffect(() => {
    const root = host.current;
    if (!root) return undefined;
    colours.current = palette(root);
    const made = new uPlot(options(latest, () => colours.current ?? palette(root)), data(latest.current), root);
    plot.current = made;
    return () => made.destroy();
  }, [frame.width, frame.right, panel.height, panel.lines.length, paint.value]);

  useEffect(() => {
    plot.current?.setData(data(latest.current), false);
  }, [panel, frame.breaks]);

  // Of an axis that moves, only what is in sight is drawn anew.
  useEffect(() => {
    plot.current?.setScale("x", { min: frame.since, max: frame.until });
  }, [panel, frame.breaks, frame.since, frame.until, promises]);

  return <div class="plot" ref={host} aria-hidden="true" />;
}

function data({ panel, frame }: PlotProps): uPlot.AlignedData {
  const pixel = (frame.until - frame.since) / (frame.width - frame.right - EDGE.left);
  const tables = panel.lines.map(({ points }): uPlot.AlignedData => {
    const { x, y } = withGaps(points, frame.gap, frame.breaks, 2 * pixel);
    return [x, y];
  });
  return tables.length > 0 ? uPlot.join(tables) : [[frame.since, frame.until]];
}

function options(latest: { current: PlotProps }, colour: () => Palette): uPlot.Options {
  const { panel, frame } = latest.current;
  const now = (): PlotProps => latest.current;
  const grid = { stroke: () => colour().line, width: 1 };
  const quiet = { ticks: { show: false }, border: { show: false }, gap: 8 };
  return {
    width: frame.width,
    height: panel.height + EDGE.top + EDGE.bottom,
    padding: [EDGE.top, frame.right, EDGE.bottom, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { time: true, range: () => [now().frame.since, now().frame.until] },
      y: { range: () => [0, now().panel.ticks.at(-1) ?? 1] },
    },
    axes: [
      { ...quiet, size: 0, grid, splits: () => now().frame.times, values: () => [] },
      {
        ...quiet,
        size: EDGE.left,
        grid,
        stroke: () => colour()["ink-3"],
        font: `11px ${getComputedStyle(document.body).fontFamily}`,
        splits: () => now().panel.ticks,
        values: (_, ticks) => labels(ticks),
      },
    ],
    series: [{}, ...panel.lines.map((line) => series(line.second, panel.area, colour))],
    hooks: { drawAxes: [(plot) => bands(plot, now().promises, colour())] },
  };
}

function labels(ticks: readonly number[]): string[] {
  const decimals = tickDecimals(ticks[1] ?? 1);
  return ticks.map((tick) => fixed(tick, decimals));
}

function series(second: boolean, area: boolean, colour: () => Palette): uPlot.Series {
  return {
    stroke: () => colour()[second ? "s2" : "ink"],
    width: 1.25,
    ...(second ? { dash: [6, 3] } : {}),
    ...(area ? { fill: () => colour().h1 } : {}),
    points: { show: false },
  };
}

/** Bands lie under the lines, so they are drawn before any series is. */
function bands(plot: uPlot, promises: readonly Promised[], colours: Palette): void {
  const { ctx } = plot;
  const [first, last] = [plot.bbox.left, plot.bbox.left + plot.bbox.width];
  const x = (at: number): number => Math.min(last, Math.max(first, plot.valToPos(at, "x", true)));
  for (const { from, to, prediction } of promises) {
    const [left, right] = [x(from), x(to)];
    if (right <= left) continue;
    const y = (value: number): number => plot.valToPos(value, "y", true);
    ctx.save();
    ctx.fillStyle = colours.band;
    ctx.fillRect(left, y(prediction.high), right - left, Math.max(2, y(prediction.low) - y(prediction.high)));
    ctx.strokeStyle = colours.brain;
    ctx.lineWidth = 1.25 * devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(left, y(prediction.examples_per_second));
    ctx.lineTo(right, y(prediction.examples_per_second));
    ctx.stroke();
    ctx.restore();
  }
}
