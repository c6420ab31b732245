/**
 * A process that runs one command after the other, each as a process of its own would, but with the program
 * loaded: command.ts starts it. A command ends when nothing keeps the event loop alive any more. Then the
 * host writes the end mark to both outputs, and sends the exit code.
 */
import { writeSync } from 'node:fs';
import { runProgram } from '#src/cli/program.js';

export interface CommandOrder {
  readonly folder: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly endMark: string;
}

/** Where Node has what fetch sends through: kept connections must not outlive their command. */
const DISPATCHER = Symbol.for('undici.globalDispatcher.1');
const state = globalThis as unknown as Record<symbol, { constructor: new () => object } | undefined>;

/** Node's own exit code if a program waits at its top level, and nothing is left that could end that. */
const UNSETTLED = 13;

process.on('message', (order: CommandOrder) => {
  process.chdir(order.folder);
  for (const name of Object.keys(process.env)) Reflect.deleteProperty(process.env, name);
  for (const [name, value] of Object.entries(order.env)) if (value !== undefined) process.env[name] = value;
  process.argv.splice(2, Infinity, ...order.args);
  process.exitCode = 0;
  const dispatcher = state[DISPATCHER];
  if (dispatcher !== undefined) state[DISPATCHER] = new dispatcher.constructor() as typeof dispatcher;
  process.channel?.unref();
  let hasEnded = false;
  process.once('beforeExit', () => {
    process.channel?.ref();
    // Each run adds one of its own.
    process.stdout.removeAllListeners('error');
    for (const output of [1, 2]) writeSync(output, order.endMark);
    process.send!(hasEnded ? (process.exitCode ?? 0) : UNSETTLED);
  });
  void runProgram().then(() => (hasEnded = true));
});
