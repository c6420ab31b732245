/** Runs the command that the arguments name. Exit codes: 0 done, 1 refused, 2 wrong usage, 141 when nobody reads its output. */
import { CommanderError } from 'commander';
import { Misuse } from './output.js';
import { createProgram } from './program.js';

const EXIT_REFUSED = 1;
const EXIT_USAGE = 2;
/** What a shell shows of a program that SIGPIPE has ended, as `head` ends those whose output it has enough of. */
const EXIT_PIPE = 141;
/** They go on when nobody reads what they have said at their start. */
const SERVERS: readonly (string | undefined)[] = ['serve', 'mock-upstream'];

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  if (!SERVERS.includes(process.argv[2])) process.exit(EXIT_PIPE);
});

try {
  await createProgram().parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    // Commander has written its message. Of its errors, those for --help and --version carry 0.
    process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE;
  } else {
    process.stderr.write(`${textOf(error)}\n`);
    process.exitCode = error instanceof Misuse ? EXIT_USAGE : EXIT_REFUSED;
  }
}

/** An expected refusal carries a code and explains itself; anything else is a bug, whose place is wanted. */
function textOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return 'code' in error ? error.message : (error.stack ?? error.message);
}
