/** `tollgate status`: prints what the gateway does, once or again and again. The text is made in status-text.ts. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Option, type Command } from 'commander';
import { withGateway, type AdminClient } from './admin-client.js';
import { addDataOptions, type DataOptions, exampleText, wholeNumberFrom } from './options.js';
import { CommandError, printJson, printLine } from './output.js';
import type { StatusSample, StatusView } from './status-text.js';

/** Rates are taken over at least this long. */
const SAMPLE_MS = 1_000;
const WATCH_SECONDS = 2;
const WATCH_SECONDS_MAX = 3_600;
const CLEAR_TERMINAL = '\u{1b}[H\u{1b}[2J';

interface StatusOptions extends DataOptions {
  /** Seconds between two prints; `true` if the option was given without them. */
  readonly watch?: number | true;
}

export function addStatusCommand(program: Command): void {
  addDataOptions(
    program
      .command('status')
      .description('Show what the gateway does: calls, refusals, tokens, times, upstreams.'),
  )
    .option(
      '--watch [seconds]',
      `print again every so many seconds, ${WATCH_SECONDS} by default, until Ctrl-C`,
      wholeNumberFrom(1, WATCH_SECONDS_MAX),
    )
    // What the command does anyway. Scripts have it from the time when a terminal showed a live screen.
    .addOption(new Option('--once').hideHelp())
    .addHelpText('after', exampleText('status', 'status --watch 5', 'status --json'))
    .action((options: StatusOptions) =>
      withGateway(options, async (client) => {
        const { watch } = options;
        if (options.json === true) printJson(await client.call('GET', '/status'));
        else if (watch === undefined) await print(client, await firstSample(client));
        else await printEvery(client, watch === true ? WATCH_SECONDS : watch);
      }),
    );
}

/** Until a signal ends the process. While the gateway does not respond, because it restarts for example, that is printed. */
async function printEvery(client: AdminClient, seconds: number): Promise<never> {
  let former: StatusSample | undefined;
  for (let separator = ''; ; separator = process.stdout.isTTY ? CLEAR_TERMINAL : '\n') {
    try {
      former = await print(client, former ?? (await firstSample(client)), separator);
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      printLine(`The gateway does not answer. Trying again every ${seconds} s; Ctrl-C ends.`);
      former = undefined;
    }
    await sleep(seconds * 1_000);
  }
}

/** A sample whose age is enough for rates: one sample alone has totals only. */
async function firstSample(client: AdminClient): Promise<StatusSample> {
  const sample = await sampleOf(client);
  await sleep(SAMPLE_MS);
  return sample;
}

/** Returns the sample that it printed. */
async function print(client: AdminClient, former: StatusSample, separator = ''): Promise<StatusSample> {
  const { statsOf, statusText } = await import('./status-text.js');
  const latest = await sampleOf(client);
  const columns = process.stdout.isTTY ? process.stdout.columns : Infinity;
  const text = statusText(latest.status, statsOf(former, latest), columns);
  process.stdout.write(separator + text);
  return latest;
}

async function sampleOf(client: AdminClient): Promise<StatusSample> {
  const status = (await client.call('GET', '/status')) as StatusView;
  return { status, atMs: performance.now() };
}
