/**
 * A process that serves all mock upstreams of a test file, each on a port of its own: mock.ts starts it, and
 * tells it which mocks to start and to close. It ends with the process that started it.
 */
import { Command } from 'commander';
import type { ProviderName } from '#src/core/provider-names.js';
import { MOCK_FLAGS, mockOptionsOfFlags } from '#src/mock/mock-options.js';
import { startMockUpstream, type MockUpstream } from '#src/mock/mock-upstream.js';

/** A mock to be started with the arguments of `tollgate mock-upstream`, or the port of one to be closed. */
export type MockOrder =
  | { readonly id: number; readonly args: readonly string[] }
  | { readonly close: number };
export type MockStarted = { readonly id: number } & ({ readonly port: number } | { readonly error: string });

const mocks = new Map<number, MockUpstream>();

async function start(args: readonly string[]): Promise<number> {
  const command = new Command().exitOverride().option('--provider <name>');
  for (const { flags } of MOCK_FLAGS) command.option(flags);
  command.parse(args, { from: 'user' });
  const flags = command.opts<{ provider?: ProviderName }>();
  const defaults = mockOptionsOfFlags(flags);
  const settings = { host: '127.0.0.1', port: 0, record: true, provider: flags.provider, defaults };
  const mock = await startMockUpstream(settings);
  mocks.set(mock.port, mock);
  return mock.port;
}

process.on('message', (order: MockOrder) => {
  if ('close' in order) {
    mocks.get(order.close)?.close();
    mocks.delete(order.close);
    return;
  }
  const { id, args } = order;
  start(args).then(
    (port) => process.send!({ id, port } satisfies MockStarted),
    (error: unknown) => process.send!({ id, error: String(error) } satisfies MockStarted),
  );
});
process.once('disconnect', () => process.exit());
