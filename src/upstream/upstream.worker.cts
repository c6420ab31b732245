/**
 * Entry of an upstream worker. CommonJS, because Piscina loads an ES module by code from strings where
 * `require` can't, and that is switched off in every thread that faces the network.
 */
import type { UpstreamTask } from './worker-messages.js' with { 'resolution-mode': 'import' };

module.exports = async (task: UpstreamTask): Promise<void> => {
  const { runUpstreamTask } = await import('./upstream-task.js');
  await runUpstreamTask(task);
};
