/**
 * Entry of a listener thread that is an upstream worker too (`workers: 0`): the listener, and the task that a
 * thread of the pool runs otherwise. They exchange the same frames, by a channel within this thread.
 * listeners.ts starts it.
 *
 * Must hold: if this thread fails, its calls end unbilled and a successor serves
 * (test/e2e/listener-with-worker.test.ts).
 */
import { workerData } from 'node:worker_threads';
import { createLocalChannel } from '../channel/frame-port.js';
import type { ListenerInit } from '../request/messages.js';
import { channel } from '../request/listener.thread.js';
import { runUpstreamTask } from '../upstream/upstream-task.js';
import type { UpstreamTask } from '../upstream/worker-messages.js';

/** `workerData` of a listener thread; the task is undefined if workers have threads of their own. */
export interface ListenerWithWorkerInit extends ListenerInit {
  readonly upstreamTask: UpstreamTask | undefined;
}

const { upstreamTask } = workerData as ListenerWithWorkerInit;
if (upstreamTask !== undefined) {
  const [listenerEnd, workerEnd] = createLocalChannel();
  channel.attachWorker(upstreamTask.index, listenerEnd);
  void runUpstreamTask(upstreamTask, workerEnd);
}
