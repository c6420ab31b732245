/** All commands, by who adds them. What a command needs is imported by its action, so that `--help` is quick. */
import { Command } from 'commander';
import { packageVersion } from '../core/version.js';
import { addAccountCommands } from './account-commands.js';
import { addAuditCommand } from './audit-command.js';
import { addCatalogCommands } from './catalog-commands.js';
import { addConfigCommands } from './config-command.js';
import { addHealthCommand } from './health-command.js';
import { addHostCommands } from './host-commands.js';
import { addKeyCommands } from './key-commands.js';
import { addLogCommand } from './log-command.js';
import { addMockUpstreamCommand } from './mock-upstream-command.js';
import { addReloadCommand } from './reload-command.js';
import { addServeCommand } from './serve.js';
import { addStatusCommand } from './status-command.js';
import { addUpstreamCommands } from './upstream-commands.js';
import { addUsageCommand } from './usage-command.js';

/** A new one; parsing throws `CommanderError` in place of ending the process. */
export function createProgram(): Command {
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
  addCatalogCommands(program);
  addUsageCommand(program);
  addStatusCommand(program);
  addAuditCommand(program);
  addReloadCommand(program);
  addLogCommand(program);
  addHostCommands(program);
  addUpstreamCommands(program);
  addHealthCommand(program);
  addMockUpstreamCommand(program);
  return program;
}
