/**
 * Entry of a listener thread that is an upstream worker too. listeners.ts starts this file if the settings
 * have `workers: 0`. Otherwise it starts request/listener.thread.ts, and workers are threads of a Piscina
 * pool (pools.ts).
 *
 * The import of request/listener.thread.ts starts the listener: it listens on its port when the import is
 * done. Then this file starts the worker's task in the same thread. No call has come before that, because
 * the event loop has not run in between. Listener and worker send each other the same frames as between
 * threads, by a channel within this thread.
 *
 * Must hold: if this thread fails, in the listener's part or in the worker's, its calls are cut. The main
 * thread gives back what the calls held, charges nothing, and starts a successor
 * (test/e2e/thread-failure.test.ts). With threads for workers, connections outlive a failure of the worker.
 * Callers see no other difference (test/e2e/listener-with-worker.test.ts runs other tests again).
 */
import { workerData } from 'node:worker_threads';
import { createLocalChannel } from '../channel/frame-port.js';
import type { ListenerInit } from '../request/messages.js';
import { channel as listenerChannel } from '../request/listener.thread.js';
import { runUpstreamTask } from '../upstream/upstream-task.js';
import type { UpstreamTask } from '../upstream/worker-messages.js';

/**
 * `workerData` of every listener thread. The task is undefined if workers have threads of their own; then
 * request/listener.thread.ts is the entry, and this file does not run.
 */
export interface ListenerWithWorkerInit extends ListenerInit {
  readonly upstreamTask: UpstreamTask | undefined;
}

const { upstreamTask } = workerData as ListenerWithWorkerInit;
if (upstreamTask !== undefined) {
  // The order of the next two lines does not matter: each end keeps what is sent to it before it is opened.
  const [listenerEnd, workerEnd] = createLocalChannel();
  listenerChannel.attachWorker(upstreamTask.index, listenerEnd);
  // A rejection is an uncaught exception of this thread on purpose: listener.thread.ts logs the exception and
  // ends the thread. Without its worker the listener could serve nobody.
  void runUpstreamTask(upstreamTask, workerEnd);
}
