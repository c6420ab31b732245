#!/usr/bin/env node
/**
 * The command line. Exit codes: 0 done, 1 refused, 2 wrong usage. What a command needs is imported by its action, so that
 * `--help` is quick and the supervisor stays small.
 */
import { Command, CommanderError } from 'commander';
import { addAccountCommands } from './account-commands.js';
import { addAuditCommand } from './audit-command.js';
import { addConfigCommands } from './config-command.js';
import { addKeyCommands } from './key-commands.js';
import { addMockUpstreamCommand } from './mock-upstream-command.js';
import { addServeCommand } from './serve.js';
import { packageVersion } from '../core/version.js';

const EXIT_REFUSED = 1;
const EXIT_USAGE = 2;

const program = new Command('tollgate');
program
  .description('Self-hosted gateway for chat-completion models.')
  .version(packageVersion())
  .showHelpAfterError('(--help shows what can be given)')
  // Before the commands are added: each copies it.
  .exitOverride();
addServeCommand(program);
addConfigCommands(program);
addAccountCommands(program);
addKeyCommands(program);
addAuditCommand(program);
addMockUpstreamCommand(program);

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    // Commander has written its message. Of its errors, those for --help and --version carry 0.
    process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE;
  } else {
    process.stderr.write(`${textOf(error)}\n`);
    process.exitCode = EXIT_REFUSED;
  }
}

/** An expected refusal carries a code and explains itself; anything else is a bug, whose place is wanted. */
function textOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return 'code' in error ? error.message : (error.stack ?? error.message);
}
