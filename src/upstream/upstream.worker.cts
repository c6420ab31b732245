/**
 * Entry of an upstream worker's thread. Piscina (gateway/pools.ts) calls it once, with a task that runs as
 * long as the thread. It is CommonJS: Piscina loads a file by `require`, and an ES module by a function
 * that it makes of a string, which every thread that faces the network forbids.
 *
 * Must hold: it imports nothing but types by itself (test/e2e/thread-failure.test.ts shows that the thread
 * starts although code from strings is forbidden).
 */
import type { UpstreamTask } from './worker-messages.js' with { 'resolution-mode': 'import' };

module.exports = async (task: UpstreamTask): Promise<void> => {
  const { runUpstreamTask } = await import('./upstream-task.js');
  await runUpstreamTask(task);
};
