/** `tollgate health`: whether the gateway on this data directory takes calls, for the health checks of containers. */
import type { Command } from 'commander';
import { exampleText, CommandError } from './output.js';
import { addStoreOptions } from './data-options.js';

interface HealthOptions {
  readonly config?: string;
  readonly data?: string;
}

/** On one host a response takes a millisecond; health checks are repeated, and must not pile up. */
const HEALTH_TIMEOUT_MS = 3_000;

export function addHealthCommand(program: Command): void {
  addStoreOptions(
    program
      .command('health')
      .description(
        'Say whether the gateway takes calls: exit 0 if it does, 1 if it starts, drains or is not there.',
      ),
  )
    .addHelpText('after', exampleText('health --data /var/lib/tollgate'))
    .action(checkHealth);
}

/** Throws `Refusal`. Looks the data directory up in the settings only where it is not named: reading them takes 0.2 s of CPU. */
async function checkHealth(options: HealthOptions): Promise<void> {
  const { adminOrigin, readGatewayFile } = await import('../admin/gateway-file.js');
  const data = await dataPathOf(options);
  const address = readGatewayFile(data);
  if (address === undefined)
    throw new CommandError(`No gateway serves from ${data}: there is no gateway.json.`);
  const url = `${adminOrigin(address)}/readyz`;
  const status = await fetch(url, { signal: AbortSignal.timeout(HEALTH_TIMEOUT_MS), redirect: 'error' }).then(
    (response) => response.status,
    () => undefined,
  );
  if (status === undefined) throw new CommandError(`${url} does not answer: the gateway has ended or hangs.`);
  if (status !== 200) throw new CommandError(`${url} answers ${status}: the gateway starts or drains.`);
  process.stdout.write('ready\n');
}

async function dataPathOf({ config, data }: HealthOptions): Promise<string> {
  const named = data ?? process.env.TOLLGATE_DATA;
  if (named !== undefined && named !== '') return named;
  const { loadSettings } = await import('../config/load.js');
  return loadSettings({ config, secrets: false }).settings.data;
}
