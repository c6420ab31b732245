/**
 * Entry of a counter thread: short tasks that would stall a listener or a stream. CommonJS for the same
 * reason as the upstream worker's.
 */
import type { CounterTask } from './worker-messages.js' with { 'resolution-mode': 'import' };

module.exports = async (task: CounterTask): Promise<unknown> => {
  const { runCounterTask } = await import('./counter-task.js');
  return runCounterTask(task);
};
