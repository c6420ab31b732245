/**
 * The text that `tollgate status` prints: the status document, and the rates and percentiles of
 * status-stats.ts, in tables that fit the terminal. status-command.ts calls `statusText`, in the process of
 * the command. Pure.
 *
 * Must hold (test/unit/cli/status-text.test.ts):
 *
 * - Each field that StatusView makes optional may be missing, because the gateway may have another version.
 *   UNKNOWN stands for a missing field. A section that is only printed if it has rows is left out.
 * - No line is wider than the terminal.
 * - No text of the document controls the terminal: each line is VisibleText, of table.ts or `headOf`.
 *
 * The functions of single numbers are exported for status-text.numbers.test.ts.
 */
import type { GroupView } from '../admin/views.js';
import { percentText } from '../core/quotas.js';
import { visible, type VisibleText } from '../core/wrong-input.js';
import type { CredentialStatus, Percentile, ThreadStatus } from '../telemetry/status-document.js';
import {
  type Percentiles,
  PERCENTS,
  type Rate,
  type StatusStats,
  type StatusView,
  type UpstreamView,
} from './status-stats.js';
import { type Column, cutTo, tableText } from './table.js';

/** Printed for a field that is missing: a dash that is longer than NOTHING. */
const UNKNOWN = '–';
/** Printed for a field that says that there is none. */
const NOTHING = '-';

const groupedNumber = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const shortNumber = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
/** From this count on the text is shortened, because the order of magnitude says more than the digits. */
const SHORT_FROM = 10_000_000;

/** Returns text such as `1,234,567`, or `12.3M` from ten million on. */
export function countText(count: number | undefined): string {
  if (count === undefined) return UNKNOWN;
  return count < SHORT_FROM ? groupedNumber.format(count) : shortNumber.format(count);
}

/** Returns a text with one decimal below 9.95, which would be rounded up to `10.0`; above without. */
export function rateText(perSecond: number | undefined): string {
  if (perSecond === undefined) return UNKNOWN;
  return perSecond > 0 && perSecond < 9.95 ? perSecond.toFixed(1) : countText(perSecond);
}

/** Returns text such as `0.35 ms`, `12 ms`, `1.2 s`; `> 60 s` above the histogram's last bound. */
export function durationText(percentile: Percentile | undefined): string {
  if (percentile === undefined) return UNKNOWN;
  const { ms, above } = percentile;
  return `${above ? '> ' : ''}${ms < 999.5 ? millisecondsText(ms) : secondsText(ms)}`;
}

/** The decimals change at values that would be rounded up: 0.995 is `1.0` and not `1.00`. */
function millisecondsText(ms: number): string {
  return `${ms.toFixed(ms < 0.995 ? 2 : ms < 9.95 ? 1 : 0)} ms`;
}

function secondsText(ms: number): string {
  return `${(ms / 1_000).toFixed(ms < 9_950 ? 1 : 0)} s`;
}

/** Returns text such as `3d 04:05:06`. */
export function uptimeText(seconds: number | undefined): string {
  if (seconds === undefined) return UNKNOWN;
  const twoDigits = (count: number): string => String(Math.floor(count)).padStart(2, '0');
  const days = Math.floor(seconds / 86_400);
  const clock = [(seconds % 86_400) / 3_600, (seconds % 3_600) / 60, seconds % 60].map(twoDigits).join(':');
  return days > 0 ? `${days}d ${clock}` : clock;
}

const MIB = 1024 * 1024;

export function mebibytesText(bytes: number | undefined): string {
  return bytes === undefined ? UNKNOWN : `${(bytes / MIB).toFixed(1)} MiB`;
}

/** Returns a text with six decimals, or two from 100 on. `--json` and `tollgate usage` print all twelve. */
export function moneyText(amount: number | undefined): string {
  if (amount === undefined) return UNKNOWN;
  return amount.toFixed(amount < 100 ? 6 : 2);
}

/** Returns the text, which ends with a line break. A line has at most `width` cells, perhaps Infinity. */
export function statusText(status: StatusView, stats: StatusStats, width: number): string {
  const sections = [
    headOf(status),
    trafficOf(stats, width),
    outcomesOf(stats, width),
    upstreamsOf(status.upstreams ?? [], width),
    groupsOf(status.groups ?? [], width),
    credentialsOf(status.credentials ?? [], width),
    threadsOf(status.threads ?? [], width),
  ].filter((section) => section.length > 0);
  const lines = sections.flatMap((section, index) => (index === 0 ? section : [visible(''), ...section]));
  return `${lines.map((line) => cutTo(line, width)).join('\n')}\n`;
}

function headOf(status: StatusView): VisibleText[] {
  const { ready, store } = status;
  const limitCalls = status.limits?.calls_in_flight;
  const ofLimitText = limitCalls === undefined ? '' : ` of ${countText(limitCalls)}`;
  const state = ready === undefined ? UNKNOWN : ready ? 'ready' : 'not ready';
  const lines = [
    [
      `Tollgate ${status.version ?? UNKNOWN}`,
      state,
      `up ${uptimeText(status.uptime_seconds)}`,
      `Node ${status.node ?? UNKNOWN}`,
      `process ${status.pid ?? UNKNOWN}`,
    ].join('  '),
    [
      `in flight ${countText(status.calls_in_flight)}${ofLimitText}`,
      `listeners ${status.listeners ?? UNKNOWN}`,
      `workers ${status.workers ?? UNKNOWN}`,
      `books ${store?.ok === undefined ? UNKNOWN : store.ok ? 'ok' : 'not written'}`,
    ].join('  '),
  ];
  if (store?.ok === false) {
    lines.push(`${countText(store.unflushed_accounts)} accounts wait: ${store.last_error ?? UNKNOWN}`);
  }
  return [...lines, ...sharingOf(status)].map(visible);
}

const OTHER_VERSION = `${UNKNOWN}: the gateway has another version, which does not tell`;

/** Returns a line for shared limits, and one for shared accounts and keys, unless they are known to work. */
function sharingOf({ sharing }: StatusView): string[] {
  // Versions that could not share lack the field.
  if (sharing === undefined || sharing === null) return [];
  const { state, reason, lost_seconds: seconds, registry } = sharing;
  const lines: string[] = [];
  if (state === undefined) lines.push(`shared limits ${OTHER_VERSION}`);
  else if (state !== 'connected')
    lines.push(`shared limits ${state} for ${countText(seconds)} s: ${reason ?? UNKNOWN}`);
  if (registry === null || registry?.state === 'following') return lines;
  if (registry?.state === undefined) lines.push(`shared accounts and keys ${OTHER_VERSION}`);
  else lines.push(`shared accounts and keys ${registry.state}: ${registry.reason ?? UNKNOWN}`);
  return lines;
}

/** A row of the table of counters. */
interface CountRow {
  readonly name: string;
  readonly perSecond: string;
  readonly total: string;
}

/** A row of the table of times; `percentiles` in the order of PERCENTS. */
interface TimeRow {
  readonly time: string;
  readonly percentiles: readonly string[];
}

const COUNT_COLUMNS: readonly Column<CountRow>[] = [
  { title: '', text: ({ name }) => name },
  { title: 'PER SECOND', text: ({ perSecond }) => perSecond, align: 'right' },
  { title: 'TOTAL', text: ({ total }) => total, align: 'right' },
];

const TIME_COLUMNS: readonly Column<TimeRow>[] = [
  { title: '', text: ({ time }) => time },
  ...PERCENTS.map((percent, index): Column<TimeRow> => ({
    title: `P${percent}` as const,
    text: ({ percentiles }) => percentiles[index] ?? '',
    align: 'right',
  })),
];

/** Returns counters, and times beside or below them. The time `gateway` is the overhead. */
function trafficOf(stats: StatusStats, width: number): VisibleText[] {
  const countRow = (name: string, { perSecond, total }: Rate): CountRow => ({
    name,
    perSecond: rateText(perSecond),
    total: countText(total),
  });
  const timeRow = (time: string, percentiles: Percentiles): TimeRow => ({
    time,
    percentiles: percentiles.map(durationText),
  });
  const counts = [
    countRow('calls', stats.calls),
    countRow('input tokens', stats.prompt),
    countRow('  cached', stats.cached),
    countRow('output tokens', stats.completion),
    { name: 'cost', perSecond: moneyText(stats.cost.perSecond), total: moneyText(stats.cost.total) },
  ];
  const times = [
    timeRow('whole call', stats.duration),
    timeRow('first token', stats.firstToken),
    timeRow('gateway', stats.overhead),
  ];
  // There are fewer times than counters, so the last counters have no time beside them.
  const noTime: TimeRow = { time: '', percentiles: [] };
  const sideBySide = tableText<CountRow & TimeRow>(
    [...COUNT_COLUMNS, ...TIME_COLUMNS],
    counts.map((row, index) => ({ ...row, ...(times[index] ?? noTime) })),
    width,
  );
  if (!sideBySide.narrowed) return [...sideBySide.lines];
  return [...tableLines(COUNT_COLUMNS, counts, width), ...tableLines(TIME_COLUMNS, times, width)];
}

function outcomesOf({ outcomes }: StatusStats, width: number): VisibleText[] {
  if (outcomes.length === 0) return [];
  return tableLines<StatusStats['outcomes'][number]>(
    [
      { title: 'OUTCOME', text: ({ code }) => code },
      { title: 'PER SECOND', text: ({ perSecond }) => rateText(perSecond), align: 'right' },
      { title: 'TOTAL', text: ({ total }) => countText(total), align: 'right' },
    ],
    outcomes,
    width,
  );
}

/** Shown if an upstream of the table has limits. */
const USED_COLUMN: Column<UpstreamView> = { title: 'USED', text: usedText, align: 'right' };

function upstreamsOf(upstreams: readonly UpstreamView[], width: number): VisibleText[] {
  if (upstreams.length === 0) return [];
  return tableLines<UpstreamView>(
    [
      { title: 'MODEL', text: ({ model }) => model ?? UNKNOWN, cut: true },
      { title: 'UPSTREAM', text: ({ name }) => name ?? UNKNOWN, cut: true },
      { title: 'PRIORITY', text: ({ priority }) => String(priority ?? UNKNOWN), align: 'right' },
      { title: 'IN FLIGHT', text: (upstream) => countText(upstream.calls_in_flight), align: 'right' },
      { title: 'BREAKER', text: ({ breaker }) => breaker?.replaceAll('_', ' ') ?? UNKNOWN },
      // Attempts, in a title so short that most names fit into 80 cells.
      { title: 'TRIES', text: ({ attempts }) => countText(attempts), align: 'right' },
      { title: 'FAILED', text: ({ failures }) => countText(failures), align: 'right' },
      ...(upstreams.some(({ quotas = [] }) => quotas.length > 0) ? [USED_COLUMN] : []),
    ],
    upstreams,
    width,
  );
}

/** Returns how many percent of the fullest limit are used or held, and how many calls wait, if any. */
function usedText({ quotas, waiting_calls: waiting = 0 }: UpstreamView): string {
  if (quotas === undefined) return UNKNOWN;
  if (quotas.length === 0) return NOTHING;
  const fullest = quotas.reduce((use, other) =>
    other.used / other.limit > use.used / use.limit ? other : use,
  );
  return `${percentText(fullest.limit, fullest.used)}${waiting === 0 ? '' : `, ${waiting} wait`}`;
}

const GROUPS_SHOWN_MAX = 10;

/** Returns the groups whose fullest quota is used or held most, GROUPS_SHOWN_MAX of them at most. */
function groupsOf(groups: readonly Partial<GroupView>[], width: number): VisibleText[] {
  const rows = groups
    .flatMap(({ path, accounts, quotas = {} }) => {
      const uses = Object.entries(quotas).map(([quota, { limit, used, held }]) => ({
        quota,
        // The use of a quota is complete or missing (StatusView).
        usedText: percentText(limit, used, held),
        // Money is text. A float is exact enough for an order.
        share: (Number(used) + Number(held)) / Number(limit),
      }));
      const fullest = uses.toSorted((use, other) => other.share - use.share)[0];
      return fullest === undefined ? [] : [{ ...fullest, accounts, name: path?.join(' / ') ?? UNKNOWN }];
    })
    .toSorted((group, other) => other.share - group.share)
    .slice(0, GROUPS_SHOWN_MAX);
  if (rows.length === 0) return [];
  return tableLines<(typeof rows)[number]>(
    [
      { title: 'GROUP', text: ({ name }) => name, cut: true },
      { title: 'ACCOUNTS', text: ({ accounts }) => countText(accounts), align: 'right' },
      { title: 'USED', text: (row) => row.usedText, align: 'right' },
      { title: 'OF', text: ({ quota }) => quota },
    ],
    rows,
    width,
  );
}

/** Returns the credentials of cloud providers, which the gateway renews. */
function credentialsOf(credentials: readonly Partial<CredentialStatus>[], width: number): VisibleText[] {
  if (credentials.length === 0) return [];
  const expiry = ({ expires_at: seconds }: Partial<CredentialStatus>): string =>
    seconds === undefined
      ? UNKNOWN
      : seconds === null
        ? NOTHING
        : `${new Date(seconds * 1_000).toISOString().slice(0, 19)}Z`;
  return tableLines<Partial<CredentialStatus>>(
    [
      { title: 'CREDENTIAL', text: ({ name }) => name ?? UNKNOWN, cut: true },
      {
        title: 'STATE',
        text: ({ ok }) => (ok === undefined ? UNKNOWN : ok ? 'good' : 'missing'),
      },
      { title: 'EXPIRES', text: expiry },
      { title: 'RENEWED', text: ({ renewals }) => countText(renewals), align: 'right' },
      { title: 'FAILED', text: ({ failures }) => countText(failures), align: 'right' },
      {
        title: 'LAST ERROR',
        text: ({ last_error: error }) => (error === undefined ? UNKNOWN : (error ?? NOTHING)),
        cut: true,
      },
    ],
    credentials,
    width,
  );
}

function threadsOf(threads: readonly Partial<ThreadStatus>[], width: number): VisibleText[] {
  if (threads.length === 0) return [];
  return tableLines<Partial<ThreadStatus>>(
    [
      { title: 'THREAD', text: ({ name }) => name ?? UNKNOWN, cut: true },
      {
        title: 'LOOP DELAY P99',
        text: ({ event_loop_delay_ms_p99: ms }) => durationText(ms === undefined ? ms : { ms, above: false }),
        align: 'right',
      },
      { title: 'HEAP', text: ({ heap_bytes }) => mebibytesText(heap_bytes), align: 'right' },
    ],
    threads,
    width,
  );
}

function tableLines<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width: number,
): VisibleText[] {
  return [...tableText(columns, rows, width).lines];
}
