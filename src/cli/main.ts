#!/usr/bin/env node
/** The entry of the command line. It imports the commands only if this Node can run them. */
import { unsupportedNode } from './runtime-support.js';

const unsupported = unsupportedNode(process.versions.node);
if (unsupported === undefined) {
  const { runProgram } = await import('./program.js');
  await runProgram();
} else {
  process.stderr.write(`${unsupported}\n`);
  process.exitCode = 1;
}
