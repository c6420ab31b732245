/**
 * `tollgate mock-upstream`: serves a scripted upstream (src/mock) for trials, tests and benches, in the
 * process of the command, until a signal. program.ts adds the command, and does not end it if nobody reads
 * its output. The flags come from mock/mock-options.ts, whose test is test/unit/mock/mock-options.test.ts.
 *
 * Must hold: the one line on standard output ends with a URL that works, because programs read it
 * (test/unit/cli/mock-upstream-command.test.ts).
 */
import { isIPv6 } from 'node:net';
import { Option, type Command } from 'commander';
import { PROVIDER_NAMES, type ProviderName } from '../core/provider-names.js';
import { MOCK_FLAGS, MockOptionError, mockOptionsOfFlags, type MockOptions } from '../mock/mock-options.js';
import { exampleText } from './options.js';
import { CommandError, EXIT_USAGE } from './output.js';
import { unloadableServer } from './runtime-support.js';

const DIRECTIVES_HELP = `
One call is steered by the header x-mock, or where a gateway stands in between by the first line of the last user
message after "x-mock:", with a query string of the same options in snake case:
  curl -H 'x-mock: status=429&retry_after=2' …
  {"messages":[{"role":"user","content":"x-mock: fault=reset-mid&chunks=10\\nHello"}], …}
GET /mock/stats says what was seen; POST /mock/reset-stats forgets it.`;

/** The values of the flags by their names in camel case, as Commander gives them. */
type Flags = Readonly<Record<string, unknown>>;

const PORT_MAX = 65_535;

/** Throws MockOptionError, so that a wrong port ends the command as any other wrong flag does. */
function portOf(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : PORT_MAX + 1;
  if (port > PORT_MAX)
    throw new MockOptionError(`port wants an integer from 0 to ${PORT_MAX}, got "${text}"`);
  return port;
}

/** Ends the command with EXIT_USAGE if a flag is wrong. */
function optionsOf(
  command: Command,
  flags: Flags,
): { readonly port: number; readonly defaults: MockOptions } {
  try {
    return { port: portOf(String(flags.port)), defaults: mockOptionsOfFlags(flags) };
  } catch (error) {
    if (!(error instanceof MockOptionError)) throw error;
    return command.error(`error: ${error.message}`, { exitCode: EXIT_USAGE });
  }
}

export function addMockUpstreamCommand(program: Command): void {
  const command = program
    .command('mock-upstream')
    .description('Run a scripted upstream that speaks the protocol of a provider, for trials and tests.')
    .option('--host <host>', 'address to listen on', '127.0.0.1')
    .option('--port <port>', 'port to listen on, 0 for any', '0')
    .addOption(
      new Option('--provider <name>', 'whose protocol it speaks').choices(PROVIDER_NAMES).default('openai'),
    )
    .option('--record', 'keep the last request for /mock/stats, and headers for an echo asked in a prompt');
  for (const { flags, help } of MOCK_FLAGS) command.option(flags, help);
  command.addHelpText(
    'after',
    exampleText('mock-upstream --port 9000 --first-byte-ms 200') + DIRECTIVES_HELP,
  );
  command.action(async (flags: Flags) => {
    const host = String(flags.host);
    const { port, defaults } = optionsOf(command, flags);
    // Commander has rejected any other name (`choices`).
    const provider = flags.provider as ProviderName;
    const unsupported = unloadableServer();
    if (unsupported !== undefined) throw new CommandError(unsupported);
    // Loaded only here, so that the other commands start fast, and after the check of the runtime.
    const { startMockUpstream } = await import('../mock/mock-upstream.js');
    const mock = await startMockUpstream({ host, port, record: flags.record === true, provider, defaults });
    // A program may read the address, so an IPv6 host has its brackets.
    const hostText = isIPv6(host) ? `[${host}]` : host;
    process.stdout.write(`mock upstream on http://${hostText}:${mock.port}\n`);
    const stop = (): void => {
      mock.close();
      process.exit(0);
    };
    process.once('SIGTERM', stop);
    process.once('SIGINT', stop);
  });
}
