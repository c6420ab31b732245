/**
 * `tollgate calls …`: lists, follows and shows the calls that a host has kept in its call log. program.ts
 * adds the commands, which read from the admin interface. export-command.ts calls `csvCellsOf` too.
 *
 * Must hold: names and order of the CSV's columns are public
 * (test/e2e/call-record.test.ts, test/e2e/contents.test.ts, test/e2e/export.test.ts).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { PAGE_ITEMS_MAX } from '../admin/addresses.js';
import type { CallsPageView, CallView, ContentsView } from '../admin/call-routes.js';
import { type CsvCell, csvOf } from '../core/csv.js';
import { addAdminCommand, printIfMore } from './admin-command.js';
import {
  NoResponse,
  queryOf,
  readList,
  unreadText,
  withAdminClient,
  withGateway,
  withQuery,
} from './admin-client.js';
import {
  addAdminOptions,
  type AdminOptions,
  exampleText,
  parseNonEmpty,
  wholeNumberFrom,
} from './options.js';
import { Misuse, printError, printFields, printJson, printLine, printTable } from './output.js';
import type { Column } from './table.js';

/** A bound, because `calls list` has all calls in memory before it prints the first. */
const LIST_CALLS_MAX = 100_000;
const LIST_CALLS_DEFAULT = 50;
/** Calls that `calls tail` prints before it waits for new ones. */
const TAIL_FIRST_CALLS = 10;
const TAIL_PERIOD_MS = 1_000;
const NO_RESPONSE_TEXT = `The gateway does not answer. Trying again every ${TAIL_PERIOD_MS / 1_000} s; Ctrl-C ends.`;

interface CallFilterOptions extends AdminOptions {
  readonly account?: string;
  readonly group?: string;
  readonly key?: string;
  readonly model?: string;
  readonly upstream?: string;
  readonly status?: string;
  readonly code?: string;
  readonly failed?: boolean;
}

interface ListOptions extends CallFilterOptions {
  readonly from?: string;
  readonly to?: string;
  readonly limit: number;
  readonly csv?: boolean;
}

const CALL_COLUMNS: readonly Column<CallView>[] = [
  { title: 'ENDED', text: ({ time }) => endedText(time) },
  { title: 'REQUEST ID', text: ({ request_id: id }) => id },
  { title: 'ACCOUNT', text: accountText, cut: true },
  { title: 'MODEL', text: ({ model }) => model ?? '-', cut: true },
  { title: 'UPSTREAM', text: ({ upstream }) => upstream ?? '-', cut: true },
  { title: 'STATUS', text: ({ status }) => String(status ?? '-'), align: 'right' },
  { title: 'CODE', text: ({ code }) => code ?? '' },
  { title: 'TOKENS', text: tokensText, align: 'right' },
  { title: 'COST', text: ({ cost }) => cost ?? '-', align: 'right' },
  { title: 'MS', text: ({ duration_ms: ms }) => ms.toFixed(0), align: 'right' },
];

export function addCallCommands(program: Command): void {
  const calls = program
    .command('calls')
    .description('Find calls that ended in the last hours or days (call_log), on this host.');
  addFilters(calls.command('list').description('List calls, those that ended last first.'))
    .option(
      '--from <time>',
      'ended then or later: Unix seconds, 2025-01-31T12:00Z or a day (UTC); by default all that are kept',
      parseNonEmpty,
    )
    .option('--to <time>', 'ended before it; a day belongs to it', parseNonEmpty)
    .option('--limit <calls>', 'at most so many', wholeNumberFrom(1, LIST_CALLS_MAX), LIST_CALLS_DEFAULT)
    .option('--csv', 'print CSV')
    .addHelpText(
      'after',
      exampleText('calls list --account acme --failed', 'calls list --upstream api.openai.com --status 5xx'),
    )
    .action(listCalls);
  addAdminCommand(
    calls,
    'show <request-id>',
    "Show one call as it went, by the response's x-request-id.",
    'calls show req_3fQx0aZcW8Lk-1c',
    'calls show req_3fQx0aZcW8Lk-1c --contents',
  )
    .option('--contents', 'its request and its response too, if call_log.contents has kept them')
    .action(showCall);
  addFilters(
    calls.command('tail').description('Print the last calls, then others as they end, until Ctrl-C.'),
  )
    .addHelpText('after', exampleText('calls tail --failed'))
    .action(tailCalls);
}

function addFilters(command: Command): Command {
  return addAdminOptions(command)
    .option('--account <account>', 'of this account (id or name)', parseNonEmpty)
    .option('--group <group>', 'of accounts that are in this group (id or name) or below it', parseNonEmpty)
    .option('--key <key>', 'of this key (id or name)', parseNonEmpty)
    .option('--model <model>', 'that named this model, or that it answered', parseNonEmpty)
    .option('--upstream <upstream>', 'with an attempt on this upstream', parseNonEmpty)
    .option('--status <status>', 'with this status, such as 502 or 5xx', parseNonEmpty)
    .option(
      '--code <code>',
      'with this error code, or client_gone; of several, with commas between, any',
      parseNonEmpty,
    )
    .option('--failed', 'that did not go well');
}

function pathOf(options: CallFilterOptions & { readonly from?: string; readonly to?: string }): string {
  const { account, group, key, model, upstream, status, code, failed, from, to } = options;
  const isFailed = failed === true ? 'true' : undefined;
  const query = queryOf({ account, group, key, model, upstream, status, code, failed: isFailed, from, to });
  return withQuery('/calls', query);
}

async function listCalls(options: ListOptions): Promise<void> {
  if (options.csv === true && options.json === true) throw new Misuse('Give one of --json and --csv.');
  await withAdminClient(options, async (client) => {
    const list = await readList<CallView>(client, pathOf(options), options.limit);
    if (options.json === true) printJson(list);
    else {
      if (options.csv === true) process.stdout.write(csvOf(CALL_CSV_FIELDS, list.data.map(csvCellsOf)));
      else await printTable(CALL_COLUMNS, list.data, 'No such call is kept.');
      printIfMore(list);
    }
    if (list.unread !== undefined) printError(unreadText(list.unread));
  });
}

/**
 * Prints until a signal ends the process, also while the gateway does not respond, such as at a restart. The
 * next response has all calls since the last response (test/unit/cli/call-commands.test.ts).
 */
async function tailCalls(options: CallFilterOptions): Promise<void> {
  const print = (calls: readonly CallView[]): void => {
    for (const call of calls) {
      if (options.json === true) printJson(call);
      else printLine(CALL_COLUMNS.map(({ text }) => text(call)).join('  '));
    }
  };
  /** `unread` of the last page. */
  let unreadFiles = '';
  await withGateway(options, async (client) => {
    const path = pathOf(options);
    const fetchPage = async (query: Readonly<Record<string, string>>): Promise<CallsPageView> => {
      const page = (await client.call('GET', withQuery(path, queryOf(query)))) as CallsPageView;
      // A gateway of an earlier version sends no `unread`.
      const { unread = [] } = page as Partial<CallsPageView>;
      if (unread.length > 0 && unread.join() !== unreadFiles) printError(unreadText(unread));
      unreadFiles = unread.join();
      return page;
    };
    const page = await fetchPage({ limit: String(TAIL_FIRST_CALLS) });
    // This page begins with the newest call. Pages with `after` begin with the oldest.
    print([...page.data].reverse());
    let isUnreachable = false;
    for (let after = page.newest; ;) {
      try {
        const { data, newest } = await fetchPage({ after, limit: String(PAGE_ITEMS_MAX) });
        isUnreachable = false;
        print(data);
        after = newest;
        // The page is full, so more calls may have ended already.
        if (data.length >= PAGE_ITEMS_MAX) continue;
      } catch (error) {
        if (!(error instanceof NoResponse)) throw error;
        if (!isUnreachable) printError(NO_RESPONSE_TEXT);
        isUnreachable = true;
      }
      await sleep(TAIL_PERIOD_MS);
    }
  });
}

async function showCall(id: string, options: AdminOptions & { contents?: boolean }): Promise<void> {
  await withAdminClient(options, async (client) => {
    const path = `/calls/${encodeURIComponent(id)}`;
    const call = (await client.call('GET', path)) as CallView;
    const contents =
      options.contents === true
        ? ((await client.call('GET', `${path}/contents`)) as ContentsView)
        : undefined;
    if (options.json === true) {
      printJson(contents === undefined ? call : { ...call, contents });
      return;
    }
    await printCall(call);
    if (contents === undefined) return;
    printContents('request', contents.request);
    printContents('response', contents.response);
  });
}

/** Tabs and the line breaks of HTTP are no control characters here: indented JSON and events have them. */
function printContents(title: string, { text, bytes, cut }: ContentsView['request']): void {
  printLine('');
  printLine(`${title}, ${bytes} bytes${cut ? ', of which the beginning is kept' : ''}:`);
  for (const line of text.split(/\r?\n/)) printLine(line.replaceAll('\t', '    '));
}

async function printCall(call: CallView): Promise<void> {
  const { model, answered_model: answered } = call;
  await printFields([
    ['request id', call.request_id],
    ['account', namedText(call.account, call.account_name, 'not in the books of this host')],
    ['key', namedText(call.key, call.key_name, 'deleted')],
    ['route', `${call.route}${call.stream ? ', streamed' : ''}`],
    ['model', `${model ?? '-'}${answered === null || answered === model ? '' : `, answered by ${answered}`}`],
    ...(call.cache === null ? [] : [['response cache', call.cache] as const]),
    ['status', outcomeText(call)],
    ...(call.error === null ? [] : [['error', call.error] as const]),
    ['tokens', usageText(call)],
    ['cost', call.cost === null ? 'not charged' : `${call.cost} (tokens ${call.source})`],
  ]);
  printLine('');
  for (const [ms, text] of timelineOf(call)) printLine(`${`+${ms.toFixed(1)} ms`.padStart(14)}  ${text}`);
}

/** Returns the events of a call, each with its milliseconds from the call's arrival. The end is last. */
function timelineOf(call: CallView): (readonly [ms: number, event: string])[] {
  const events: [number, string][] = [];
  const cameMs = Date.parse(call.time) - call.duration_ms;
  events.push([0, `came, ${endedText(new Date(cameMs).toISOString())}`]);
  if (call.admitted_ms !== null) events.push([call.admitted_ms, `admitted${quotasText(call)}`]);
  if (call.queued_ms > 0) {
    // The record has only the sum of all waits, so the event stands where the first wait may have begun.
    const fromMs = Math.max((call.attempts[0]?.start_ms ?? 0) - call.queued_ms, call.admitted_ms ?? 0);
    events.push([fromMs, `waited ${call.queued_ms} ms in all for room in the limits of upstreams`]);
  }
  call.attempts.forEach((attempt, index) => {
    const { upstream, model, start_ms: startMs, duration_ms: ms } = attempt;
    const name = `attempt ${index + 1}`;
    const upstreamText = upstream ?? 'an upstream that is gone';
    events.push([startMs, `${name} on ${upstreamText}${model === null ? '' : ` (${model})`}`]);
    const status = attempt.status === null ? 'no status' : `status ${attempt.status}`;
    const reason = attempt.error === null ? '' : `: ${attempt.error}`;
    const endText = `${name} ${attemptEndText(attempt.code)}`;
    events.push([startMs + ms, `${endText}, ${status}, after ${ms.toFixed(1)} ms${reason}`]);
  });
  if (call.first_token_ms !== null) events.push([call.first_token_ms, 'first token']);
  events.sort(([ms], [otherMs]) => ms - otherMs);
  // After the sort, so that the end is last whatever the times are.
  events.push([call.duration_ms, `ended, ${outcomeText(call)}`]);
  return events;
}

/** Returns how an attempt ended. `cancelled` is no failure of the upstream, because the client had left. */
function attemptEndText(code: string | null): string {
  if (code === null) return 'ended';
  return code === 'cancelled' ? 'was stopped, as the caller had left' : `failed (${code})`;
}

function quotasText({ quotas }: CallView): string {
  if (quotas.length === 0) return '';
  const texts = quotas.map(({ scope, id, quota, left }) => {
    const scopeText = scope === 'group' || scope === 'model' ? `${scope} ${id ?? '?'}` : scope;
    return `${scopeText} ${quota} ${left}`;
  });
  return `; left then: ${texts.join(', ')}`;
}

function outcomeText({ status, code }: CallView): string {
  return [status ?? 'no status: the caller left', code].filter((text) => text !== null).join(' ');
}

function usageText(call: CallView): string {
  if (call.prompt_tokens === null) return '-';
  const tokenUses = [
    [call.cached_tokens, 'cached'],
    [call.cache_write_tokens, 'written to the cache'],
    [call.reasoning_tokens, 'reasoning'],
  ] as const;
  const texts = tokenUses.flatMap(([tokens, use]) => ((tokens ?? 0) > 0 ? [`${tokens} ${use}`] : []));
  const detail = texts.length === 0 ? '' : ` (of them ${texts.join(', ')})`;
  return `${call.prompt_tokens} prompt, ${call.completion_tokens} completion${detail}`;
}

function tokensText({ prompt_tokens: prompt, completion_tokens: completion }: CallView): string {
  return prompt === null ? '-' : String(prompt + (completion ?? 0));
}

function accountText({ account, account_name: name }: CallView): string {
  return name ?? account ?? '-';
}

/** Returns name and id. `whyNoName` takes the place of a missing name. */
function namedText(id: string | null, name: string | null, whyNoName: string): string {
  if (id === null) return 'not known';
  return name === null ? `${id} (${whyNoName})` : `${name} (${id})`;
}

/** Returns text such as `2025-01-31 12:00:00.123Z`. */
function endedText(time: string): string {
  return time.replace('T', ' ');
}

/** The columns of CSV, in their public order: all fields but CALL_LIST_FIELDS (export-command.ts). */
export const CALL_CSV_FIELDS = [
  'time',
  'request_id',
  'route',
  'account',
  'account_name',
  'key',
  'key_name',
  'model',
  'answered_model',
  'upstream',
  'stream',
  'cache',
  'status',
  'code',
  'prompt_tokens',
  'cached_tokens',
  'cache_write_tokens',
  'cache_write_1h_tokens',
  'completion_tokens',
  'reasoning_tokens',
  'source',
  'cost',
  'first_token_ms',
  'duration_ms',
  'queued_ms',
  'admitted_ms',
  'error',
] as const satisfies readonly (keyof CallView)[];

export function csvCellsOf(call: CallView): CsvCell[] {
  return CALL_CSV_FIELDS.map((name) => {
    const value = call[name];
    return typeof value === 'boolean' ? String(value) : value;
  });
}
