/**
 * Charts of one or more lines over time, painted by uPlot, and the lines that pages make of their rows. The
 * pages with charts use it. Browser.
 *
 * Must hold: a chart is painted anew when the colours change, and freed with its component
 * (test/e2e/console.test.ts).
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { colorOf, onThemeChange } from './browser.js';

export interface Series {
  readonly name: string;
  /** A custom property of the style sheet. */
  readonly color: string;
  /** One for each time; null if there is none. */
  readonly values: readonly (number | null)[];
}

/** What the charts of a page have in common. */
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
  /** Twice as wide as the others, if there is room. */
  readonly wide: boolean;
}

type ChartProps = TimeAxis & ChartContent;

export function chart(
  title: string,
  unit: string,
  format: ChartContent['format'],
  series: readonly Series[],
  wide = false,
): ChartContent {
  return { title, unit, format, series, wide };
}

export function Charts({ charts, ...axis }: TimeAxis & { readonly charts: readonly ChartContent[] }) {
  return (
    <div class="charts">
      {charts.map((content) => (
        <Chart key={content.title} {...axis} {...content} />
      ))}
    </div>
  );
}

/** `count` times, `stepSeconds` apart, the newest last. */
export function timesUntil(last: number, stepSeconds: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => last - (count - 1 - index) * stepSeconds);
}

/** Returns a function that makes lines of rows, given by their time. Without a row the value is 0. */
export function linesOf<Row>(times: readonly number[], rows: ReadonlyMap<number, Row>) {
  return (name: string, color: string, value: (row: Row) => number): Series => ({
    name,
    color,
    values: times.map((time) => {
      const row = rows.get(time);
      return row === undefined ? 0 : value(row);
    }),
  });
}

/** As the least height of `.plot` in style/layout.css. */
const HEIGHT_PX = 168;
const FONT = '11px system-ui, sans-serif';
const AXIS_WIDTH_PX = 56;
const TIME_STEPS_SECONDS = [
  10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000,
  2_592_000,
];
/** The axes of longer charts have days instead of times of the day. */
const DAYS_FROM_SECONDS = 172_800;

function Chart(props: ChartProps) {
  const { title, unit, times, series, seconds, wide } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  /** Counts changes of the colours, each of which paints the chart anew. */
  const [paints, setPaints] = useState(0);
  useEffect(() => onThemeChange(() => setPaints((count) => count + 1)), []);

  const shape = series.map(({ name, color }) => `${name} ${color}`).join();
  useEffect(() => {
    const element = box.current!;
    const drawn = new uPlot(optionsOf(latest, element.clientWidth), dataOf(latest.current), element);
    plot.current = drawn;
    const watch = new ResizeObserver(() => drawn.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      drawn.destroy();
    };
  }, [shape, paints]);
  useEffect(() => plot.current?.setData(dataOf(latest.current), true), [times, series, seconds]);

  return (
    <figure class={wide ? 'chart wide' : 'chart'}>
      <figcaption>
        <h3>{title}</h3>
        <span class="unit">{unit}</span>
        <Legend {...props} />
      </figcaption>
      <div ref={box} class="plot" role="img" aria-label={descriptionOf(props)} />
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
          {name} <b>{shown(values.findLast((value) => value !== null) ?? null, format)}</b>
        </li>
      ))}
    </ul>
  );
}

function descriptionOf({ title, unit, series, format }: ChartProps): string {
  const lines = series.map(({ name, values }) => `${name} ${shown(values.at(-1) ?? null, format)}`);
  return `${title}, ${unit}: now ${lines.join(', ')}`;
}

function shown(value: number | null, format: (value: number) => string): string {
  return value === null ? '–' : format(value);
}

function dataOf({ times, series }: ChartProps): uPlot.AlignedData {
  return [[...times], ...series.map(({ values }) => [...values])];
}

function optionsOf(latest: { readonly current: ChartProps }, width: number): uPlot.Options {
  const muted = colorOf('--muted');
  const grid = { show: true, stroke: colorOf('--line'), width: 1 };
  const axis = { stroke: muted, font: FONT, grid, ticks: { show: false } };
  const bars = latest.current.barSeconds === undefined ? undefined : uPlot.paths.bars!({ size: [0.7, 60] });
  const single = latest.current.series.length === 1;
  return {
    width,
    height: HEIGHT_PX,
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
      // From 0, so that the noise of a quiet line does not fill the chart.
      y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    axes: [
      {
        ...axis,
        // uPlot's own steps jump from 1 minute to 5, so a narrow chart would have fewer than two labels.
        incrs: TIME_STEPS_SECONDS,
        space: 70,
        size: 28,
        values: (_, splits) => splits.map((split) => clockOf(split, latest.current.seconds)),
      },
      {
        ...axis,
        size: AXIS_WIDTH_PX,
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
        points: { show: false },
        spanGaps: false,
        ...(single && bars === undefined ? { fill: `${colorOf(color)}22` } : {}),
        ...(bars === undefined ? {} : { paths: bars, width: 0, fill: colorOf(color) }),
      })),
    ],
    plugins: [{ hooks: { setCursor: [(chart: uPlot) => showHint(chart, latest.current)] } }],
  };
}

function clockOf(unixSeconds: number, shownSeconds: number): string {
  if (shownSeconds > DAYS_FROM_SECONDS) {
    return new Date(unixSeconds * 1_000).toLocaleDateString('en-GB', { day: 'numeric', month: 'short' });
  }
  return new Date(unixSeconds * 1_000).toLocaleTimeString('en-GB', {
    hour: '2-digit',
    minute: '2-digit',
    ...(shownSeconds <= 300 ? { second: '2-digit' } : {}),
  });
}

/** Shows the values under the pointer, beside it. */
function showHint(chart: uPlot, { times, series, format, seconds }: ChartProps): void {
  const over = chart.over;
  let hint = over.querySelector<HTMLElement>('.hint');
  const index = chart.cursor.idx;
  const left = chart.cursor.left ?? -1;
  if (index === null || index === undefined || left < 0) {
    hint?.remove();
    return;
  }
  if (hint === null) {
    hint = document.createElement('div');
    hint.className = 'hint';
    over.append(hint);
  }
  const lines = series.map(({ name, values }) => `${name} ${shown(values[index] ?? null, format)}`);
  hint.textContent = [clockOf(times[index]!, seconds), ...lines].join('\n');
  const right = left > over.clientWidth / 2;
  hint.style.left = right ? 'auto' : `${left + 10}px`;
  hint.style.right = right ? `${over.clientWidth - left + 10}px` : 'auto';
}
