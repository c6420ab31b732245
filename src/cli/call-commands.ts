/**
 * `tollgate calls …`: lists, follows and shows the calls that a host has kept in its call log. program.ts
 * adds the commands, which read from the admin interface. call-text.ts has the texts.
 *
 * Must hold: who gets a list, or follows calls, is told which files of the call log could not be read: calls
 * may be missing. `calls tail` misses no call while the gateway does not respond.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { PAGE_ITEMS_MAX } from '../admin/addresses.js';
import type { CallsPageView, CallView } from '../admin/call-routes.js';
import { addAdminCommand, printIfMore } from './admin-command.js';
import { NoResponse, withAdminClient, withGateway } from './admin-client.js';
import { readList, unreadText } from './admin-lists.js';
import { CALL_COLUMNS, contentsLines, fieldsOf, lineOf, timelineLines } from './call-text.js';
import { CALL_COLUMNS as CSV_COLUMNS, csvTextOf } from './export-columns.js';
import { type AdminOptions, parseNonEmpty, wholeNumberFrom } from './options.js';
import { Misuse, printError, printFields, printJson, printLine, printTable } from './output.js';

/** A bound, because `calls list` has all calls in memory before it prints the first. */
const LIST_CALLS_MAX = 100_000;
const LIST_CALLS_DEFAULT = 50;
/** Calls that `calls tail` prints before it waits for new ones. */
const TAIL_FIRST_CALLS = 10;
const TAIL_PERIOD_MS = 1_000;
const NO_RESPONSE_TEXT = `The gateway does not answer. Trying again every ${TAIL_PERIOD_MS / 1_000} s; Ctrl-C ends.`;

/** The options that filter calls, which are parameters of `GET /calls` too, with their help. */
const FILTERS = {
  account: 'of this account (id or name)',
  group: 'of accounts that are in this group (id or name) or below it',
  key: 'of this key (id or name)',
  model: 'that named this model, or that it answered',
  upstream: 'with an attempt on this upstream',
  status: 'with this status, such as 502 or 5xx',
  code: 'with this error code, or client_gone; of several, with commas between, any',
} as const;
const FILTER_NAMES = Object.keys(FILTERS) as readonly (keyof typeof FILTERS)[];

type CallFilterOptions = AdminOptions & {
  readonly [Name in keyof typeof FILTERS]?: string;
} & { readonly failed?: boolean };

type ListOptions = CallFilterOptions & {
  readonly from?: string;
  readonly to?: string;
  readonly limit: number;
  readonly csv?: boolean;
};

export function addCallCommands(program: Command): void {
  const calls = program
    .command('calls')
    .description('Find calls that ended in the last hours or days (call_log), on this host.');
  const list = addAdminCommand(
    calls,
    'list',
    'List calls, those that ended last first.',
    'calls list --account acme --failed',
    'calls list --upstream api.openai.com --status 5xx',
  );
  addFilters(list)
    .option(
      '--from <time>',
      'ended then or later: Unix seconds, 2025-01-31T12:00Z or a day (UTC); by default all that are kept',
      parseNonEmpty,
    )
    .option('--to <time>', 'ended before it; a day belongs to it', parseNonEmpty)
    .option('--limit <calls>', 'at most so many', wholeNumberFrom(1, LIST_CALLS_MAX), LIST_CALLS_DEFAULT)
    .option('--csv', 'print CSV')
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
  const tailText = 'Print the last calls, then others as they end, until Ctrl-C.';
  addFilters(addAdminCommand(calls, 'tail', tailText, 'calls tail --failed')).action(tailCalls);
}

function addFilters(command: Command): Command {
  for (const name of FILTER_NAMES) command.option(`--${name} <${name}>`, FILTERS[name], parseNonEmpty);
  return command.option('--failed', 'that did not go well');
}

/** Returns the filters as parameters of `GET /calls`. */
function filtersOf(options: CallFilterOptions): Readonly<Record<string, string | undefined>> {
  const filters = Object.fromEntries(FILTER_NAMES.map((name) => [name, options[name]]));
  return { ...filters, failed: options.failed === true ? 'true' : undefined };
}

async function listCalls(options: ListOptions): Promise<void> {
  if (options.csv === true && options.json === true) throw new Misuse('Give one of --json and --csv.');
  await withAdminClient(options, async (client) => {
    const { from, to, limit } = options;
    const list = await readList(client, 'GET /calls', { query: { ...filtersOf(options), from, to } }, limit);
    if (options.json === true) printJson(list);
    else {
      if (options.csv === true) process.stdout.write(csvTextOf(CSV_COLUMNS, list.data, { titles: true }));
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
      else printLine(lineOf(call));
    }
  };
  /** `unread` of the last page. */
  let unreadFiles = '';
  await withGateway(options, async (client) => {
    const filters = filtersOf(options);
    const fetchPage = async (query: Readonly<Record<string, string>>): Promise<CallsPageView> => {
      const page = await client.call('GET /calls', { query: { ...filters, ...query } });
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
    const call = await client.call('GET /calls/{call}', { id });
    const contents =
      options.contents === true ? await client.call('GET /calls/{call}/contents', { id }) : undefined;
    if (options.json === true) {
      printJson(contents === undefined ? call : { ...call, contents });
      return;
    }
    await printFields(fieldsOf(call));
    printLine('');
    for (const line of timelineLines(call)) printLine(line);
    if (contents === undefined) return;
    for (const line of contentsLines('request', contents.request)) printLine(line);
    for (const line of contentsLines('response', contents.response)) printLine(line);
  });
}
