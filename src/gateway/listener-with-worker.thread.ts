/**
 * Entry of a listener thread that is an upstream worker too. listeners.ts starts this file unless all calls
 * go to the workers' threads (`workers_from_load_percent: 0`); then it starts request/listener.thread.ts.
 *
 * The import of request/listener.thread.ts starts the listener: it listens on its port when the import is
 * done. Then this file starts the worker's task in the same thread. No call has come before that, because
 * the event loop has not run in between. Listener and worker send each other the same frames as between
 * threads, by a channel within this thread.
 *
 * Must hold: if this thread fails, in the listener's part or in the worker's, its calls are cut. The main
 * thread gives back what calls hold that were not charged yet, and starts a successor
 * (test/e2e/thread-failure.test.ts). With threads for workers, connections outlive a failure of the worker.
 * Callers see no other difference (test/e2e/workers.test.ts runs other tests with one kind of worker alone).
 */
import { workerData } from 'node:worker_threads';
import { createLocalChannel } from '../channel/frame-port.js';
import type { ListenerInit } from '../request/messages.js';
import { channel, health } from '../request/listener.thread.js';
import { runUpstreamTask } from '../upstream/upstream-task.js';
import type { UpstreamTask } from '../upstream/worker-messages.js';

/**
 * `workerData` of every listener thread. `ownWorker` is undefined if request/listener.thread.ts is the entry;
 * then this file does not run.
 */
export interface ListenerWithWorkerInit extends ListenerInit {
  readonly ownWorker: { readonly task: UpstreamTask; readonly loadMax: number } | undefined;
}

const { ownWorker } = workerData as ListenerWithWorkerInit;
if (ownWorker !== undefined) {
  const { task, loadMax } = ownWorker;
  // A call costs the worker about as much time as the listener. So while the worker's part is done elsewhere,
  // only half of `loadMax` shows that there is time for both parts here.
  let hasTime = true;
  // The order of the next two lines does not matter: each end keeps what is sent to it before it is opened.
  const [listenerEnd, workerEnd] = createLocalChannel();
  channel.attachOwnWorker(listenerEnd, () => (hasTime = health.load < (hasTime ? loadMax : loadMax / 2)));
  // A rejection is an uncaught exception of this thread on purpose: listener.thread.ts logs the exception and
  // ends the thread, because the channel would go on to hand calls to a worker that does not answer.
  void runUpstreamTask(task, workerEnd);
}
