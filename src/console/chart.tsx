/**
 * Charts of one or more lines (Series) over time, painted by uPlot, and functions that make lines from rows.
 * overview-page.tsx, account-charts.tsx and usage-page.tsx use them. Browser.
 *
 * Must hold: a chart is painted again when the colours change, and freed with its component
 * (test/e2e/console.test.ts).
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { axisMoment, DAY_SECONDS } from './format.js';
import { colorOf, onThemeChange } from './theme.js';

export interface Series {
  readonly name: string;
  /** A custom property of the style sheet. */
  readonly color: string;
  /** A value for each time; null if there is none. */
  readonly values: readonly (number | null)[];
}

/** The times of a chart, which all charts of a page share. */
interface TimeAxis {
  /** Unix seconds. */
  readonly times: readonly number[];
  /** How far back the charts go from their last time. */
  readonly seconds: number;
  /** If set, bars are drawn instead of lines: each time stands for a span of this length. */
  readonly barSeconds?: number;
}

export interface ChartContent {
  readonly title: string;
  /** Unit of the vertical axis: `per second`. */
  readonly unit: string;
  readonly series: readonly Series[];
  readonly format: (value: number) => string;
  /** Whether it is twice as wide as other charts, if the window is wide enough; false by default. */
  readonly isWide?: boolean;
}

type ChartProps = TimeAxis & ChartContent;

/** Makes the content of one of `charts` of Charts. */
export function chart(
  title: string,
  unit: string,
  format: ChartContent['format'],
  series: readonly Series[],
): ChartContent {
  return { title, unit, format, series };
}

/** Titles are unique among `charts`. */
export function Charts({ charts, ...axis }: TimeAxis & { readonly charts: readonly ChartContent[] }) {
  return (
    <div class="charts">
      {charts.map((content) => (
        <Chart key={content.title} {...axis} {...content} />
      ))}
    </div>
  );
}

/** Returns `count` times, `stepSeconds` apart, of which the newest is `last`. */
export function timesUntil(last: number, stepSeconds: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => last - (count - 1 - index) * stepSeconds);
}

/** Returns a function that makes a line from `rows`, by their time. A missing row counts as 0. */
export function seriesMaker<Row>(times: readonly number[], rows: ReadonlyMap<number, Row>) {
  return (name: string, color: string, value: (row: Row) => number): Series => ({
    name,
    color,
    values: times.map((time) => {
      const row = rows.get(time);
      return row === undefined ? 0 : value(row);
    }),
  });
}

/** The box has this height before the chart is painted, so that no page jumps. */
const HEIGHT_PX = 168;
const FONT = '11px system-ui, sans-serif';
const AXIS_WIDTH_PX = 56;
/** A digit's width in FONT, for amounts of money with many decimals, which take a wider axis. */
const DIGIT_PX = 7;
const TIME_STEPS_SECONDS = [
  10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000,
  2_592_000,
];

function Chart(props: ChartProps) {
  const { title, unit, times, series, seconds, isWide = false } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  /** The newest properties, for functions that uPlot calls later. */
  const latest = useRef(props);
  latest.current = props;
  /** Counts changes of the colours. After each the chart is painted again. */
  const [themeChanges, setThemeChanges] = useState(0);
  useEffect(() => onThemeChange(() => setThemeChanges((count) => count + 1)), []);

  /** Other names or colours need a new uPlot. For other values `setData` is enough. */
  const linesKey = series.map(({ name, color }) => `${name} ${color}`).join();
  useEffect(() => {
    const element = box.current!;
    const newPlot = new uPlot(optionsOf(latest, element.clientWidth), dataOf(latest.current), element);
    plot.current = newPlot;
    const observer = new ResizeObserver(() =>
      newPlot.setSize({ width: element.clientWidth, height: HEIGHT_PX }),
    );
    observer.observe(element);
    return () => {
      observer.disconnect();
      newPlot.destroy();
    };
  }, [linesKey, themeChanges]);
  useEffect(() => plot.current?.setData(dataOf(latest.current), true), [times, series, seconds]);

  return (
    <figure class={isWide ? 'chart wide' : 'chart'}>
      <figcaption>
        <h3>{title}</h3>
        <span class="unit">{unit}</span>
        <Legend {...props} />
      </figcaption>
      <div
        ref={box}
        class="plot"
        style={{ minHeight: `${HEIGHT_PX}px` }}
        role="img"
        aria-label={descriptionOf(props)}
      />
    </figure>
  );
}

/** The last value of each line, in words. */
function Legend({ series, format }: ChartProps) {
  return (
    <ul class="legend">
      {series.map(({ name, color, values }) => (
        <li key={name}>
          <i class="swatch" style={{ background: `var(${color})` }} />
          {name} <b>{textOf(values.findLast((value) => value !== null) ?? null, format)}</b>
        </li>
      ))}
    </ul>
  );
}

/** The chart in words, for screen readers. */
function descriptionOf({ title, unit, series, format }: ChartProps): string {
  const lines = series.map(({ name, values }) => `${name} ${textOf(values.at(-1) ?? null, format)}`);
  return `${title}, ${unit}: now ${lines.join(', ')}`;
}

function textOf(value: number | null, format: (value: number) => string): string {
  return value === null ? '–' : format(value);
}

function dataOf({ times, series }: ChartProps): uPlot.AlignedData {
  return [[...times], ...series.map(({ values }) => [...values])];
}

/** `latest`: the properties, which uPlot's callbacks read when they are called. `width`: in pixels. */
function optionsOf(latest: { readonly current: ChartProps }, width: number): uPlot.Options {
  const muted = colorOf('--muted');
  const grid = { show: true, stroke: colorOf('--line'), width: 1 };
  const axis = { stroke: muted, font: FONT, grid, ticks: { show: false } };
  const bars = latest.current.barSeconds === undefined ? undefined : uPlot.paths.bars!({ size: [0.7, 60] });
  /** The area below a single line is filled; areas of several lines would cover each other. */
  const isSingle = latest.current.series.length === 1;
  return {
    width,
    height: HEIGHT_PX,
    // The labels of days in UTC stand where these days begin.
    tzDate: (unixSeconds) => {
      const date = new Date(unixSeconds * 1_000);
      return latest.current.barSeconds === DAY_SECONDS ? uPlot.tzDate(date, 'UTC') : date;
    },
    padding: [8, 20, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    scales: {
      x: {
        time: true,
        range: (_, min, max) => {
          const { seconds, barSeconds = 0 } = latest.current;
          return [Math.min(min, max - seconds) - barSeconds / 2, max + barSeconds / 2];
        },
      },
      // The axis begins at 0, so that the noise of a nearly constant line does not fill the chart.
      y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    axes: [
      {
        ...axis,
        // uPlot's own steps jump from 1 minute to 5, so a narrow chart would have fewer than two labels.
        // A bar has one label at most.
        incrs: () => TIME_STEPS_SECONDS.filter((step) => step >= (latest.current.barSeconds ?? 0)),
        space: 70,
        size: 28,
        values: (_, splits) => {
          const { seconds, barSeconds } = latest.current;
          return splits.map((split) => axisMoment(split, seconds, barSeconds));
        },
      },
      {
        ...axis,
        // The labels are null while there is no value.
        size: (_, labels: readonly string[] | null) =>
          Math.max(AXIS_WIDTH_PX, ...(labels ?? []).map((label) => (label.length + 1) * DIGIT_PX)),
        space: 36,
        values: (_, splits) => splits.map((value) => latest.current.format(value)),
      },
    ],
    series: [
      {},
      ...latest.current.series.map(({ name, color }) => ({
        label: name,
        stroke: colorOf(color),
        width: 1.75,
        points: {
          show: false,
          size: 4,
          filter: (plot: uPlot, index: number) =>
            bars === undefined ? loneIndexes(plot.data[index]!) : null,
        },
        spanGaps: false,
        ...(isSingle && bars === undefined ? { fill: `${colorOf(color)}22` } : {}),
        ...(bars === undefined ? {} : { paths: bars, width: 0, fill: colorOf(color) }),
      })),
    ],
    plugins: [{ hooks: { setCursor: [(chart: uPlot) => showHint(chart, latest.current)] } }],
  };
}

/**
 * Returns the indexes of the values that have no neighbour. uPlot draws no line of such a value, so a point
 * is drawn: else the latency of a lone call would not be seen.
 */
export function loneIndexes(values: ArrayLike<number | null | undefined>): number[] {
  const isMissing = (index: number): boolean => (values[index] ?? null) === null;
  const indexes = Array.from({ length: values.length }, (_, index) => index);
  return indexes.filter((index) => !isMissing(index) && isMissing(index - 1) && isMissing(index + 1));
}

/** Shows the values under the pointer, in a box beside it. uPlot calls this at each move of the pointer. */
function showHint(chart: uPlot, { times, series, format, seconds, barSeconds }: ChartProps): void {
  const plotArea = chart.over;
  let hint = plotArea.querySelector<HTMLElement>('.hint');
  const index = chart.cursor.idx;
  const leftPx = chart.cursor.left ?? -1;
  // uPlot's position is negative when the pointer has left.
  if (index === null || index === undefined || leftPx < 0) {
    hint?.remove();
    return;
  }
  if (hint === null) {
    hint = document.createElement('div');
    hint.className = 'hint';
    plotArea.append(hint);
  }
  const lines = series.map(({ name, values }) => `${name} ${textOf(values[index] ?? null, format)}`);
  hint.textContent = [axisMoment(times[index]!, seconds, barSeconds), ...lines].join('\n');
  const isRightHalf = leftPx > plotArea.clientWidth / 2;
  hint.style.left = isRightHalf ? 'auto' : `${leftPx + 10}px`;
  hint.style.right = isRightHalf ? `${plotArea.clientWidth - leftPx + 10}px` : 'auto';
}
