/**
 * The long-lived task of an upstream worker: owns its clients and one link to each listener. Upstream worker.
 */
import { SystemClock } from '../core/clock.js';
import { packageVersion } from '../core/version.js';
import type { Usage } from '../protocol/usage.js';
import { AskPort } from '../pool/ask-port.js';
import { CallTable } from '../pool/call-table.js';
import { WorkerLink } from '../pool/worker-link.js';
import { createLog } from '../telemetry/log.js';
import { createStartSession } from './chat-session.js';
import { EchoClient } from './echo-client.js';
import type { CountRequest } from './token-count.js';
import { UndiciClient } from './undici-client.js';
import type { ToUpstreamWorker, UpstreamTask } from './worker-messages.js';

/** Returns when the main thread says `close`. An exception that nobody caught ends the thread; Piscina then replaces it. */
export async function runUpstreamTask(task: UpstreamTask): Promise<void> {
  const table = new CallTable(task.calls);
  const counter = new AskPort<CountRequest, Usage>(task.counterPort);
  const clock = new SystemClock();
  const http = new UndiciClient({ clock, version: packageVersion() });
  const startSession = createStartSession({
    routes: task.routes,
    http,
    echo: new EchoClient(clock),
    count: (request) => counter.ask(request),
    log: createLog(`worker-${task.index}`),
    clock,
  });
  const links = new Map<number, WorkerLink>();

  await new Promise<void>((resolve) => {
    task.controlPort.on('message', (message: ToUpstreamWorker) => {
      if (message.kind === 'close') {
        resolve();
        return;
      }
      links.get(message.index)?.cancelAll();
      links.set(message.index, new WorkerLink(message.port, table, startSession));
    });
  });

  for (const link of links.values()) link.cancelAll();
  for (const link of links.values()) link.close();
  counter.close();
  task.controlPort.close();
  await http.close();
}
