/**
 * `tollgate status`: prints the gateway's status, once or repeatedly. program.ts adds the command; it calls
 * the admin interface, status-stats.ts compares responses, and status-text.ts makes the text.
 *
 * Must hold: with `--watch` the command goes on while the gateway does not respond
 * (test/e2e/operator-reads.test.ts). The text: test/unit/cli/status-text.test.ts.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Option, type Command } from 'commander';
import { PAGE_ITEMS_MAX } from '../admin/addresses.js';
import { addAdminCommand } from './admin-command.js';
import { NoResponse, withGateway, type AdminClient } from './admin-client.js';
import { type AdminOptions, wholeNumberFrom } from './options.js';
import { CommandError, printJson, printLine, terminalWidth } from './output.js';
import type { StatusSample, StatusView } from './status-stats.js';

/** One page of groups. `groupsOf` (status-text.ts) shows those with the fullest quotas. */
const GROUPS_QUERY = { limit: String(PAGE_ITEMS_MAX) };
/** Rates are computed from two samples, at least this long apart. */
const SAMPLE_MS = 1_000;
const WATCH_SECONDS_DEFAULT = 2;
const WATCH_SECONDS_MAX = 3_600;
/** Moves the cursor to the top left, and clears the screen. */
const CLEAR_TERMINAL = '\u{1b}[H\u{1b}[2J';

interface StatusOptions extends AdminOptions {
  /** Seconds between two prints; `true` if the option was given without them. */
  readonly watch?: number | true;
}

export function addStatusCommand(program: Command): void {
  addAdminCommand(
    program,
    'status',
    'Show what the gateway does: calls, refusals, tokens, times, upstreams. Rates and times are of the last second, or since the last print.',
    'status',
    'status --watch 5',
    'status --json',
  )
    .option(
      '--watch [seconds]',
      `print again every so many seconds, ${WATCH_SECONDS_DEFAULT} by default, until Ctrl-C`,
      wholeNumberFrom(1, WATCH_SECONDS_MAX),
    )
    // Has no effect. Accepted, because scripts for an earlier version may give it.
    .addOption(new Option('--once').hideHelp())
    .action((options: StatusOptions) =>
      withGateway(options, async (client) => {
        const { watch } = options;
        // Scripts read one JSON text, so `--json` prints once, also with `--watch`.
        if (options.json === true) printJson(await client.call('GET /status', {}));
        else if (watch === undefined) await printStatus(client, await firstSample(client));
        else await printEvery(client, watch === true ? WATCH_SECONDS_DEFAULT : watch);
      }),
    );
}

/**
 * Prints until a signal ends the process. Goes on while the gateway does not respond, such as at a restart,
 * or rejects the token, which another command may mend.
 */
async function printEvery(client: AdminClient, seconds: number): Promise<never> {
  let former: StatusSample | undefined;
  for (let separator = ''; ; separator = process.stdout.isTTY ? CLEAR_TERMINAL : '\n') {
    try {
      former = await printStatus(client, former ?? (await firstSample(client)), separator);
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      const reason = error instanceof NoResponse ? 'The gateway does not answer.' : error.message;
      printLine(`${reason} Trying again every ${seconds} s; Ctrl-C ends.`);
      former = undefined;
    }
    await sleep(seconds * 1_000);
  }
}

/** Takes a sample, and resolves when a second sample gives rates. */
async function firstSample(client: AdminClient): Promise<StatusSample> {
  const sample = await sampleOf(client);
  await sleep(SAMPLE_MS);
  return sample;
}

/** Takes a sample, prints it with the rates since `former`, and returns it. */
async function printStatus(client: AdminClient, former: StatusSample, separator = ''): Promise<StatusSample> {
  // Imported only when the command runs, because program.ts imports this file for all commands.
  const { statsOf } = await import('./status-stats.js');
  const { statusText } = await import('./status-text.js');
  const latest = await sampleOf(client);
  process.stdout.write(separator + statusText(latest.status, statsOf(former, latest), terminalWidth()));
  return latest;
}

async function sampleOf(client: AdminClient): Promise<StatusSample> {
  // The route declares no fields, because the gateway may have another version.
  const status: StatusView = await client.call('GET /status', {});
  // Rates are over the time between two responses, so the time is taken before the next request.
  const atMs = performance.now();
  // Any error leaves the groups out, because the status is worth printing without them: a gateway of an
  // earlier version has no such route.
  const groups = await client.call('GET /group-tree', { query: GROUPS_QUERY }).catch(() => undefined);
  return { status: { ...status, groups: groups?.data ?? [] }, atMs };
}
