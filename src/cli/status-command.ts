/** `tollgate status`: a live screen on a terminal, printed once elsewhere. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { withGateway, type AdminClient } from './admin-client.js';
import { LiveScreen } from './live-screen.js';
import { exampleText, printJson, CommandError } from './output.js';
import { addDataOptions, type DataOptions } from './data-options.js';
import { statsOf, type StatusSample, type StatusView } from './status-stats.js';

const PERIOD_MS = 1_000;

export function addStatusCommand(program: Command): void {
  addDataOptions(
    program
      .command('status')
      .description(
        'Show what the gateway does: calls, refusals, tokens, times, upstreams; every second on a terminal, until Ctrl-C.',
      ),
  )
    .option('--once', 'print once on a terminal too')
    .addHelpText('after', exampleText('status', 'status --json'))
    .action((options: DataOptions & { readonly once?: boolean }) =>
      withGateway(options, async (client) => {
        if (options.json === true) printJson(await client.call('GET', '/status'));
        else if (process.stdout.isTTY && options.once !== true) await watch(client);
        else await printOnce(client);
      }),
    );
}

/** Two answers, a second apart, because one tells no rates. As wide as its lines are. */
async function printOnce(client: AdminClient): Promise<void> {
  const { frameOf } = await import('./status-frame.js');
  const former = await sampleOf(client);
  await sleep(PERIOD_MS);
  const latest = await sampleOf(client);
  const columns = process.stdout.isTTY ? process.stdout.columns : Infinity;
  const lines = frameOf(latest.status, statsOf(former, latest), { columns, rows: Infinity });
  process.stdout.write(`${lines.map(({ text }) => text).join('\n')}\n`);
}

/** Until a signal ends it. */
async function watch(client: AdminClient): Promise<void> {
  const { frameOf } = await import('./status-frame.js');
  const stopped = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => stopped.abort());
  // https://no-color.org
  const colors = (process.env.NO_COLOR ?? '') === '';
  const screen = new LiveScreen(process.stdout, { colors });
  let former: StatusSample | undefined;
  while (!stopped.signal.aborted) {
    try {
      const latest = await sampleOf(client);
      screen.draw(frameOf(latest.status, statsOf(former, latest), screen.size));
      former = latest;
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      // A gateway that is restarted comes back; the operator decides how long to wait.
      screen.draw([
        { text: 'The gateway does not answer. Trying again every second; Ctrl-C ends.', style: 'alarm' },
      ]);
      former = undefined;
    }
    await sleep(PERIOD_MS, undefined, { signal: stopped.signal }).catch(() => undefined);
  }
}

async function sampleOf(client: AdminClient): Promise<StatusSample> {
  const status = (await client.call('GET', '/status')) as StatusView;
  return { status, atMs: performance.now() };
}
