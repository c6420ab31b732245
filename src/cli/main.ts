#!/usr/bin/env node
/** The command line's entry. What the commands need is loaded only on a Node that can run it. */
import { unsupportedNode } from './runtime-support.js';

const unsupported = unsupportedNode(process.versions.node);
if (unsupported === undefined) {
  await import('./run.js');
} else {
  process.stderr.write(`${unsupported}\n`);
  process.exitCode = 1;
}
