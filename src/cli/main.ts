#!/usr/bin/env node
/**
 * The entry of the command line, `tollgate`. It imports the commands only if this Node can run them.
 * Test: test/unit/cli/runtime-support.test.ts.
 */
import { unsupportedNode } from './runtime-support.js';

const unsupported = unsupportedNode(process.versions.node);
if (unsupported === undefined) {
  const { runProgram } = await import('./program.js');
  await runProgram();
} else {
  process.stderr.write(`${unsupported}\n`);
  process.exitCode = 1;
}
