/** The status screen as lines of text that fit a terminal. Pure. */
import type { ThreadStatus, UpstreamStatus } from '../telemetry/status-document.js';
import {
  type Percentile,
  type Percentiles,
  PERCENTS,
  type Rate,
  type StatusStats,
  type StatusView,
} from './status-stats.js';
import { type Column, cutTo, tableText, visible } from './table.js';

/* Figures as the status screen writes them: short, and `–` for what is not known. Pure. */

export const UNKNOWN = '–';

const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
/** From here on digits tell less than the order of magnitude. */
const SHORT_FROM = 10_000_000;

/** `1,234,567`, and `12.3M` from ten million on. */
export function countText(count: number | undefined): string {
  if (count === undefined) return UNKNOWN;
  return count < SHORT_FROM ? grouped.format(count) : short.format(count);
}

/** One decimal below ten. */
export function rateText(perSecond: number | undefined): string {
  if (perSecond === undefined) return UNKNOWN;
  return perSecond > 0 && perSecond < 10 ? perSecond.toFixed(1) : countText(perSecond);
}

/** `0.35 ms`, `12 ms`, `1.2 s`; `> 60 s` beyond what is measured. */
export function durationText(percentile: Percentile | undefined): string {
  if (percentile === undefined) return UNKNOWN;
  const { ms, above } = percentile;
  const text =
    ms < 1
      ? `${ms.toFixed(2)} ms`
      : ms < 10
        ? `${ms.toFixed(1)} ms`
        : ms < 1_000
          ? `${ms.toFixed(0)} ms`
          : `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  return above ? `> ${text}` : text;
}

/** `3d 04:05:06`. */
export function uptimeText(seconds: number | undefined): string {
  if (seconds === undefined) return UNKNOWN;
  const two = (part: number): string => String(Math.floor(part)).padStart(2, '0');
  const days = Math.floor(seconds / 86_400);
  const clock = `${two((seconds % 86_400) / 3_600)}:${two((seconds % 3_600) / 60)}:${two(seconds % 60)}`;
  return days > 0 ? `${days}d ${clock}` : clock;
}

const MIB = 1024 * 1024;

export function mebibytesText(bytes: number | undefined): string {
  return bytes === undefined ? UNKNOWN : `${(bytes / MIB).toFixed(1)} MiB`;
}

/** Of an amount's twelve decimals those that fit; `--json` and `usage` have all. */
export function moneyText(amount: number | undefined): string {
  if (amount === undefined) return UNKNOWN;
  return amount.toFixed(amount < 100 ? 6 : 2);
}

export interface FrameLine {
  readonly text: string;
  /** How a terminal shows it; plain text is the same. */
  readonly style: 'plain' | 'title' | 'alarm';
}

export interface FrameSize {
  readonly columns: number;
  readonly rows: number;
}

/** At most `rows` lines, none wider than `columns`. What does not fit is told as the number of lines that are missing. */
export function frameOf(status: StatusView, stats: StatusStats, size: FrameSize): FrameLine[] {
  const sections = [
    headOf(status),
    trafficOf(stats, size.columns),
    outcomesOf(stats, size.columns),
    upstreamsOf(status.upstreams ?? [], size.columns),
    threadsOf(status.threads ?? [], size.columns),
  ].filter((section) => section.length > 0);
  return fitted(sections, size.rows).map((line) => ({ ...line, text: cutTo(line.text, size.columns) }));
}

function plain(text: string): FrameLine {
  return { text, style: 'plain' };
}

function headOf(status: StatusView): FrameLine[] {
  const { ready, store } = status;
  const state = ready === undefined ? UNKNOWN : ready ? 'ready' : 'not ready';
  const limit = status.limits === undefined ? '' : ` of ${countText(status.limits.calls_in_flight)}`;
  const lines: FrameLine[] = [
    {
      text: [
        `Tollgate ${status.version ?? UNKNOWN}`,
        state,
        `up ${uptimeText(status.uptime_seconds)}`,
        `Node ${status.node ?? UNKNOWN}`,
        `process ${status.pid ?? UNKNOWN}`,
      ].join('  '),
      style: ready === false ? 'alarm' : 'title',
    },
    plain(
      [
        `in flight ${countText(status.calls_in_flight)}${limit}`,
        `listeners ${status.listeners ?? UNKNOWN}`,
        `workers ${status.workers ?? UNKNOWN}`,
        `books ${store === undefined ? UNKNOWN : store.ok ? 'ok' : 'not written'}`,
      ].join('  '),
    ),
  ];
  if (store?.ok === false) {
    const waiting = `${countText(store.unflushed_accounts)} accounts wait`;
    lines.push({ text: visible(`${waiting}: ${store.last_error ?? UNKNOWN}`), style: 'alarm' });
  }
  return [...lines, ...sharingOf(status)];
}

/** Only what is not well. */
function sharingOf({ sharing }: StatusView): FrameLine[] {
  if (sharing === undefined || sharing === null) return [];
  const { state, reason, lost_seconds: seconds, registry } = sharing;
  const texts: string[] = [];
  if (state !== 'connected')
    texts.push(`shared limits ${state} for ${countText(seconds)} s: ${reason ?? UNKNOWN}`);
  if (registry !== null && registry.state !== 'following')
    texts.push(`shared accounts and keys ${registry.state}: ${registry.reason ?? UNKNOWN}`);
  return texts.map((text) => ({ text: visible(text), style: 'alarm' }));
}

interface CountRow {
  readonly name: string;
  readonly perSecond: string;
  readonly total: string;
}

interface TimeRow {
  readonly time: string;
  readonly percentiles: readonly string[];
}

const COUNT_COLUMNS: readonly Column<CountRow>[] = [
  { title: '', text: ({ name }) => name, align: 'left' },
  { title: 'PER SECOND', text: ({ perSecond }) => perSecond, align: 'right' },
  { title: 'TOTAL', text: ({ total }) => total, align: 'right' },
];

const TIME_COLUMNS: readonly Column<TimeRow>[] = [
  { title: '', text: ({ time }) => time, align: 'left' },
  ...PERCENTS.map((percent, at) => ({
    title: `P${percent}`,
    text: ({ percentiles }: TimeRow) => percentiles[at] ?? '',
    align: 'right' as const,
  })),
];

/** Counters on the left and times on the right where there is room, else below each other. */
function trafficOf(stats: StatusStats, columns: number): FrameLine[] {
  const counted = (name: string, { perSecond, total }: Rate): CountRow => ({
    name,
    perSecond: rateText(perSecond),
    total: countText(total),
  });
  const timed = (time: string, percentiles: Percentiles): TimeRow => ({
    time,
    percentiles: percentiles.map(durationText),
  });
  const counts = [
    counted('calls', stats.calls),
    counted('input tokens', stats.prompt),
    counted('  cached', stats.cached),
    counted('output tokens', stats.completion),
    { name: 'cost', perSecond: moneyText(stats.cost.perSecond), total: moneyText(stats.cost.total) },
  ];
  const times = [
    timed('whole call', stats.duration),
    timed('first token', stats.firstToken),
    timed('gateway', stats.overhead),
  ];
  const noTime: TimeRow = { time: '', percentiles: [] };
  const beside = tableText<CountRow & TimeRow>(
    [...COUNT_COLUMNS, ...TIME_COLUMNS],
    counts.map((row, at) => ({ ...row, ...(times[at] ?? noTime) })),
    columns,
  );
  if (!beside.narrowed) return styledTable(beside.lines);
  return [...tableLines(COUNT_COLUMNS, counts, columns), ...tableLines(TIME_COLUMNS, times, columns)];
}

function outcomesOf({ outcomes }: StatusStats, columns: number): FrameLine[] {
  if (outcomes.length === 0) return [];
  return tableLines<StatusStats['outcomes'][number]>(
    [
      { title: 'OUTCOME', text: ({ code }) => code, align: 'left' },
      { title: 'PER SECOND', text: ({ perSecond }) => rateText(perSecond), align: 'right' },
      { title: 'TOTAL', text: ({ total }) => countText(total), align: 'right' },
    ],
    outcomes,
    columns,
  );
}

function upstreamsOf(upstreams: readonly UpstreamStatus[], columns: number): FrameLine[] {
  if (upstreams.length === 0) return [];
  const [title, ...lines] = tableLines<UpstreamStatus>(
    [
      { title: 'MODEL', text: ({ model }) => model, align: 'left', cut: true },
      { title: 'UPSTREAM', text: ({ name }) => name, align: 'left', cut: true },
      { title: 'PRIORITY', text: ({ priority }) => String(priority), align: 'right' },
      { title: 'IN FLIGHT', text: (upstream) => countText(upstream.calls_in_flight), align: 'right' },
      { title: 'BREAKER', text: ({ breaker }) => breaker.replace('_', ' '), align: 'left' },
      { title: 'TRIES', text: ({ attempts }) => countText(attempts), align: 'right' },
      { title: 'FAILED', text: ({ failures }) => countText(failures), align: 'right' },
    ],
    upstreams,
    columns,
  );
  return [
    title!,
    ...lines.map((line, at): FrameLine =>
      upstreams[at]!.breaker === 'closed' ? line : { ...line, style: 'alarm' },
    ),
  ];
}

function threadsOf(threads: readonly ThreadStatus[], columns: number): FrameLine[] {
  if (threads.length === 0) return [];
  return tableLines<ThreadStatus>(
    [
      { title: 'THREAD', text: ({ name }) => name, align: 'left', cut: true },
      {
        title: 'LOOP DELAY P99',
        text: (thread) => durationText({ ms: thread.event_loop_delay_ms_p99, above: false }),
        align: 'right',
      },
      { title: 'HEAP', text: ({ heap_bytes }) => mebibytesText(heap_bytes), align: 'right' },
    ],
    threads,
    columns,
  );
}

function tableLines<Row>(columns: readonly Column<Row>[], rows: readonly Row[], width: number): FrameLine[] {
  return styledTable(tableText(columns, rows, width).lines);
}

function styledTable(lines: readonly string[]): FrameLine[] {
  return lines.map((text, at) => ({ text, style: at === 0 ? 'title' : 'plain' }));
}

/** Sections with an empty line between them. On a low terminal the longest give up their last lines. */
function fitted(sections: readonly FrameLine[][], rows: number): FrameLine[] {
  const kept = sections.map((section) => section.length);
  const heightOf = (): number => kept.reduce((sum, lines) => sum + lines, 0) + sections.length - 1;
  while (heightOf() > rows) {
    // The first two sections are what the screen is for.
    const tables = kept.slice(2);
    const longest = tables.indexOf(Math.max(...tables, 0)) + 2;
    // A title and "… more" alone tell nothing.
    if (kept[longest] === undefined || kept[longest] <= 2) break;
    kept[longest] -= 1;
  }
  const lines = sections.flatMap((section, at): FrameLine[] => {
    const shown = section.slice(0, kept[at]);
    const missing = section.length - shown.length;
    // The line that says so takes the place of one more.
    const told = missing === 0 ? shown : [...shown.slice(0, -1), plain(`… ${missing + 1} more`)];
    return at === 0 ? told : [plain(''), ...told];
  });
  if (lines.length <= rows) return lines;
  return [...lines.slice(0, Math.max(rows - 1, 0)), plain(`… ${lines.length - rows + 1} more lines`)];
}
