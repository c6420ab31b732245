/**
 * Entry of an upstream worker's thread. Piscina (gateway/upstream-workers.ts, which names this file) calls
 * the exported function once, with a task that runs as long as the thread. The file is CommonJS because
 * Piscina loads such a file by `require`. For an ES module Piscina makes a function of a string, which every
 * thread that faces the network forbids.
 *
 * Must hold: the file imports nothing but types at its start, so that `require` loads it
 * (test/e2e/thread-failure.test.ts shows that the thread starts although code from strings is forbidden).
 */
import type { UpstreamTask } from './worker-messages.js' with { 'resolution-mode': 'import' };

module.exports = async (task: UpstreamTask): Promise<void> => {
  const { runUpstreamTask } = await import('./upstream-task.js');
  await runUpstreamTask(task);
};
