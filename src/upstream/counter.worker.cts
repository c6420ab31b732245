/**
 * Entry of a counter thread: short tasks that would stall a listener or a stream. Piscina
 * (gateway/counter-pool.ts) calls it for each turn of a job. It is CommonJS, and imports nothing but types by
 * itself, for the same reasons as upstream.worker.cts.
 */
import type { CounterTask } from './worker-messages.js' with { 'resolution-mode': 'import' };

module.exports = async (task: CounterTask): Promise<unknown> => {
  const { runCounterTask } = await import('./counter-task.js');
  return runCounterTask(task);
};
