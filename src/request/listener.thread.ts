/**
 * Entry of a listener thread: wires the phases to a µWS app and follows the main thread's orders.
 *
 * An exception that nobody caught must not end the thread while µWS holds a socket, or libuv aborts the process: the app
 * is closed first, then the thread exits and the main thread puts another in its place.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { SystemClock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { CUT_CALLS_WAIT_MS_MAX } from '../core/limits.js';
import { clockOf } from '../ledger/coordinator-clock.js';
import { JournalWriter } from '../ledger/journal.js';
import { Ledger } from '../ledger/ledger.js';
import { PendingCommits } from './pending-commits.js';
import { ModelAccess } from './admit.js';
import type { ListenerContext } from './context.js';
import { AskPort } from '../channel/ask-port.js';
import { BodyBudget } from './body-budget.js';
import { CallTable } from '../channel/call-table.js';
import { IdempotencyChannel } from '../channel/idempotency-channel.js';
import { LeaseChannel } from '../channel/lease-channel.js';
import { ListenerChannel } from '../channel/listener-channel.js';
import { KeyTable } from '../registry/key-table.js';
import { AccessWriter } from '../telemetry/access-ring.js';
import { LogSwitch, openLog } from '../telemetry/log.js';
import { ListenerMetrics } from '../telemetry/listener-metrics.js';
import { openSpanOutbox } from '../telemetry/span-outbox.js';
import { ThreadHealth } from '../telemetry/thread-health.js';
import { CallTracer } from './call-trace.js';
import type { FromListener, ListenerInit, ListenerSettings, ToListener } from './messages.js';
import { ListenerServer } from './listener-server.js';

const init = workerData as ListenerInit;
const main = parentPort;
invariant(main !== null, 'a listener runs in a thread of the gateway');

// It publishes for the life of the thread.
new ThreadHealth(init.metrics, init.thread);
const logSwitch = new LogSwitch(init.metrics.log);
const log = openLog(`listener-${init.index}`, logSwitch);
const clock = clockOf(init.ledger, new SystemClock());
const say = (message: FromListener): void => main.postMessage(message);
const journal = new JournalWriter(init.journal, () => say({ kind: 'journal_half_full' }));
const held = new PendingCommits(journal, clock, () => say({ kind: 'commit' }));
const channel = new ListenerChannel(new CallTable(init.calls), init.slots);
const leases = init.leasePort && new LeaseChannel(init.leasePort);
const ledger = new Ledger(init.ledger, clock, leases);
const keys = new KeyTable(init.keys);
const accessLog = new AccessWriter(init.accessLog, logSwitch);
const metrics = new ListenerMetrics(init.metrics, init.index);
const outbox = init.tracing && (await openSpanOutbox(init.tracing.outlet));

/** Written out field by field, so that every set has one hidden class and requests stay as quick after a reload. */
function partsOf({ catalog, lowBalance, durability }: ListenerSettings): ListenerContext {
  return {
    clock,
    ledger,
    journal,
    held,
    keys,
    catalog,
    access: new ModelAccess(catalog),
    channel,
    leases,
    metrics,
    accessLog,
    lowBalance,
    durability,
  };
}

const server = new ListenerServer(
  partsOf(init.settings),
  init.settings.limits,
  init.settings.cors,
  init.requestPrefix,
  new AskPort(init.parserPort),
  new BodyBudget(init.bodies, init.index),
  new IdempotencyChannel(init.claimPort, init.storedResponseBytesMax),
  new CallTracer(init.tracing && outbox && { sampling: init.tracing.sampling, outbox }),
);

/** Who keeps a stream up to the end pays for what was relayed. Main thread and workers wait for this one meanwhile. */
function close(): void {
  setTimeout(() => end(0), CUT_CALLS_WAIT_MS_MAX);
  server.close(() => end(0));
}

function end(exitCode: number): never {
  outbox?.flush();
  channel.close();
  process.exit(exitCode);
}

process.on('uncaughtException', (error) => {
  log.error('listener failed and is being replaced; its calls were cut and not billed', {
    error: error.stack,
  });
  server.close(() => undefined);
  end(1);
});

main.on('message', (message: ToListener) => {
  switch (message.kind) {
    case 'worker':
      channel.attachWorker(message.index, message.channel);
      return;
    case 'worker_lost':
      channel.detachWorker(message.index);
      return;
    case 'committed':
      held.onCommit(message.ok);
      return;
    case 'settings':
      server.replace(partsOf(message.settings), message.settings.limits, message.settings.cors);
      if (!server.replaceTls(message.settings.tls))
        log.error('the certificate cannot be used; the one before stays in force');
      say({ kind: 'settings_taken', turn: message.turn });
      return;
    case 'drain':
      server.drain(message.keepsIdle, () => say({ kind: 'drained' }));
      return;
    case 'drain_late':
      server.drainLate();
      return;
    case 'close':
      close();
  }
});

say({ kind: server.listen(init.host, init.port, init.settings.tls) ? 'listening' : 'listen_failed' });
