/**
 * All commands, and the end of the process: exit code 0 if the command is done, 1 if it failed, 2 if the
 * command line is wrong, 141 if nobody reads its output. main.ts calls it. Each command's action imports what
 * it needs, so that `--help` is quick.
 *
 * Must hold: scripts rely on the exit codes; a command whose output nobody reads ends without an error
 * message (test/unit/cli/program.test.ts, test/unit/cli/account-commands.test.ts).
 */
import { Command, CommanderError } from 'commander';
import { packageVersion } from '../core/version.js';
import { addAccountCommands } from './account-commands.js';
import { addAuditCommand } from './audit-command.js';
import { addCallCommands } from './call-commands.js';
import { addCacheCommands, addCatalogCommands, addUpstreamCommands } from './catalog-commands.js';
import { addConfigCommands } from './config-command.js';
import { addHealthCommand, addHostCommands, addLogCommand, addReloadCommand } from './gateway-commands.js';
import { addExportCommand } from './export-command.js';
import { addGroupCommands } from './group-commands.js';
import { addKeyCommands } from './key-commands.js';
import { addChangeCommands, addOperatorCommands } from './operator-commands.js';
import { addMockUpstreamCommand } from './mock-upstream-command.js';
import { EXIT_FAILED, EXIT_USAGE, Misuse, printError, visibleLines } from './output.js';
import { addServeCommand } from './serve-command.js';
import { addStatusCommand } from './status-command.js';
import { addUsageCommand } from './usage-command.js';

/**
 * Returns a new program. Its `parseAsync` throws CommanderError where Commander would end the process.
 * `--help` lists the commands in the order in which they are added here.
 */
export function createProgram(): Command {
  const program = new Command('tollgate');
  program
    .description('Self-hosted gateway for chat-completion models.')
    .version(packageVersion())
    .showHelpAfterError('(--help shows what can be given)')
    // Before the commands are added, because each copies these settings. Commander wraps no description that
    // has less than 40 cells beside its flags, and a terminal of 80 breaks it in the midst of words.
    .configureHelp({ minWidthToWrap: 20 })
    // Its errors repeat the arguments.
    .configureOutput({ outputError: (text, write) => write(visibleLines(text)) })
    .exitOverride();
  addServeCommand(program);
  addConfigCommands(program);
  addAccountCommands(program);
  addGroupCommands(program);
  addKeyCommands(program);
  addOperatorCommands(program);
  addChangeCommands(program);
  addCatalogCommands(program);
  addUsageCommand(program);
  addCallCommands(program);
  addExportCommand(program);
  addStatusCommand(program);
  addAuditCommand(program);
  addReloadCommand(program);
  addLogCommand(program);
  addHostCommands(program);
  addUpstreamCommands(program);
  addCacheCommands(program);
  addHealthCommand(program);
  addMockUpstreamCommand(program);
  return program;
}

/** What a shell reports for a program that SIGPIPE has ended, such as one that writes to `head`. */
const EXIT_PIPE = 141;
/** The command that goes on if its output is not read, because its address is its only output. */
const SERVER = 'mock-upstream';

/** Runs the command that the process's arguments name, and sets the exit code. main.ts calls it once. */
export async function runProgram(): Promise<void> {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') {
      printError(`standard output cannot be written, what it has is cut off: ${error.message}`);
      process.exit(EXIT_FAILED);
    }
    if (process.argv[2] !== SERVER) process.exit(EXIT_PIPE);
  });
  try {
    const program = createProgram();
    await program.parseAsync(argumentsOf(program, process.argv));
  } catch (error) {
    if (error instanceof CommanderError) {
      // Commander has printed its message. `--help` and `--version` end with an error of exit code 0.
      process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE;
    } else {
      printError(textOf(error));
      process.exitCode = error instanceof Misuse ? EXIT_USAGE : EXIT_FAILED;
    }
  }
}

/**
 * Returns the arguments for Commander, with `help keys create` as `keys create --help`, because Commander
 * reads only the first word after `help`. If a word is no command, the arguments end there, without `--help`:
 * so Commander reports the word, and does not show the help of the words before it.
 */
function argumentsOf(program: Command, argv: readonly string[]): string[] {
  const [node = '', file = '', ...given] = argv;
  const isHelp = given[0] === 'help';
  const words = isHelp ? given.slice(1) : given;
  if (words.length === 0 || !(isHelp || words.includes('--help') || words.includes('-h'))) return [...argv];
  let group = program;
  for (const [index, word] of words.entries()) {
    if (group.commands.length === 0 || word === 'help' || word.startsWith('-')) break;
    const command = group.commands.find((each) => each.name() === word);
    if (command === undefined) return [node, file, ...words.slice(0, index + 1)];
    group = command;
  }
  return isHelp ? [node, file, ...words, '--help'] : [...argv];
}

/** Returns the message of an expected error, which has a code; the stack of any other error, a bug. */
function textOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return 'code' in error ? error.message : (error.stack ?? error.message);
}
