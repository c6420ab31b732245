/**
 * Entry of a listener thread: wires the phases to a µWS app and follows the main thread's orders.
 *
 * An exception that nobody caught must not end the thread while µWS holds a socket, or libuv aborts the process: the app
 * is closed first, then the thread exits and the main thread puts another in its place.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { SystemClock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { JournalWriter } from '../ledger/journal.js';
import { Ledger } from '../ledger/ledger.js';
import { HeldEnds } from '../pipeline/held-ends.js';
import { ModelAccess } from '../pipeline/model-access.js';
import { AskPort } from '../pool/ask-port.js';
import { CallTable } from '../pool/call-table.js';
import { ListenerLink } from '../pool/listener-link.js';
import { KeyTable } from '../registry/key-table.js';
import { createLog } from '../telemetry/log.js';
import { MetricsStripe } from '../telemetry/metrics.js';
import type { FromListener, ListenerInit, ToListener } from './messages.js';
import { ListenerServer } from './server.js';

const init = workerData as ListenerInit;
const main = parentPort;
invariant(main !== null, 'a listener runs in a thread of the gateway');

const log = createLog(`listener-${init.index}`);
const clock = new SystemClock();
const say = (message: FromListener): void => main.postMessage(message);
const journal = new JournalWriter(init.journal, () => say({ kind: 'journal_half_full' }));
const held = new HeldEnds(journal, clock, () => say({ kind: 'commit' }));
const link = new ListenerLink(new CallTable(init.calls), init.slots);
const server = new ListenerServer(
  {
    clock,
    ledger: new Ledger(init.ledger, clock),
    journal,
    held,
    keys: new KeyTable(init.keys),
    catalog: init.catalog,
    access: new ModelAccess(init.catalog),
    link,
    metrics: new MetricsStripe(init.metrics, init.index),
    accountCallsMax: init.accountCallsMax,
    lowBalance: init.lowBalance,
    durability: init.durability,
  },
  init.limits,
  init.requestPrefix,
  new AskPort(init.parserPort),
);

function end(exitCode: number): void {
  server.close();
  link.close();
  process.exit(exitCode);
}

process.on('uncaughtException', (error) => {
  log.error('listener failed and is being replaced; its calls were cut and not billed', {
    error: error.stack,
  });
  end(1);
});

main.on('message', (message: ToListener) => {
  switch (message.kind) {
    case 'worker':
      link.attachWorker(message.index, message.port);
      return;
    case 'worker_lost':
      link.detachWorker(message.index);
      return;
    case 'committed':
      held.onCommit(message.ok);
      return;
    case 'drain':
      server.drain(() => say({ kind: 'drained' }));
      return;
    case 'close':
      end(0);
  }
});

say({ kind: server.listen(init.host, init.port) ? 'listening' : 'listen_failed' });
