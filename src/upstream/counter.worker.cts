/**
 * Entry of a counter thread, for tasks that would stall a listener or a stream. Piscina
 * (gateway/counter-pool.ts, which names this file) calls the exported function for each slice of a job. The
 * file is CommonJS, and imports nothing but types at its start, for the reasons in upstream.worker.cts.
 */
import type { CounterTask } from './worker-messages.js' with { 'resolution-mode': 'import' };

module.exports = async (task: CounterTask): Promise<unknown> => {
  const { runCounterTask } = await import('./counter-task.js');
  return runCounterTask(task);
};
