#!/usr/bin/env node
/**
 * The entry of the command line, `tollgate`. It imports the commands only if this Node can run them, and not
 * for `serve`, whose process would keep them in memory. serve.ts forks this file again to read the settings,
 * by the command of serve-command.ts. package.json and scripts/ name the file by its path.
 *
 * Must hold: what is imported before the check of Node imports only modules of Node
 * (test/unit/cli/runtime-support.test.ts); `serve` loads no command (test/unit/bundle.test.ts).
 */
import { isSettingsProcess, unsupportedNode } from './runtime-support.js';

const unsupported = unsupportedNode(process.versions.node);
if (unsupported !== undefined) {
  process.stderr.write(`${unsupported}\n`);
  process.exitCode = 1;
} else if (process.argv[2] === 'serve' && !isSettingsProcess()) {
  const { serve } = await import('./serve.js');
  await serve();
} else {
  const { runProgram } = await import('./program.js');
  await runProgram();
}
