/**
 * Entry of a listener thread, which gateway/listeners.ts starts. It makes the objects that the phases of a
 * request work with (IntakeContext, one for the thread), listens on the common port, and follows the main
 * thread's messages (ToListener). If the listener is an upstream worker too, the entry is
 * gateway/listener-with-worker.thread.ts, which imports this file and uses its `channel` and `health`.
 *
 * Must hold: after an uncaught exception the thread closes all connections before it exits, or libuv aborts
 * the process. Then the main thread starts another listener (test/e2e/thread-failure.test.ts).
 */
import { parentPort, workerData } from 'node:worker_threads';
import { SystemClock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { CUT_CALLS_WAIT_MS_MAX } from '../core/limits.js';
import { SlotArray } from '../core/slot-array.js';
import { clockOf } from '../ledger/coordinator-clock.js';
import { JournalWriter } from '../ledger/journal.js';
import { Ledger } from '../ledger/ledger.js';
import { PendingCommits } from '../ledger/pending-commits.js';
import { ModelAccess } from './model-access.js';
import { AskPort } from '../core/ask-port.js';
import { BodyBudget } from './body-budget.js';
import { CallTable } from '../channel/call-table.js';
import { IdempotencyChannel } from '../channel/idempotency-channel.js';
import { openLeaseChannel } from '../channel/lease-channel.js';
import { ListenerChannel } from '../channel/listener-channel.js';
import { GroupNames } from '../registry/group-names.js';
import { KeyTable } from '../registry/key-table.js';
import { CallRingWriter } from '../telemetry/call-ring-writer.js';
import { LogSwitch } from '../telemetry/log-switch.js';
import { openLog } from '../telemetry/log.js';
import { ContentsBudget } from '../telemetry/contents-budget.js';
import { MainWatchdog } from '../telemetry/main-watchdog.js';
import { ListenerMetrics } from '../telemetry/metrics-writers.js';
import { openSpanOutbox } from '../telemetry/span-outbox.js';
import { ThreadHealth } from '../telemetry/thread-health.js';
import { ContentsGatherer } from './call-contents.js';
import { CallTracer } from './call-trace.js';
import { CollectBudget } from './collected-response.js';
import { Connections } from './connections.js';
import { DiscardBudget } from './discard-budget.js';
import type { IntakeContext, Swept } from './context.js';
import type { FromListener, ListenerInit, ListenerSettings, ToListener } from './messages.js';
import { ListenerServer } from './listener-server.js';
import { BodyTurns } from './read-turns.js';
import { ResponseCache } from './response-cache.js';

const init = workerData as ListenerInit;
const main = parentPort;
invariant(main !== null, 'a listener runs in a thread of the gateway');

/** Until the thread ends, publishes its event-loop delay and memory, and watches the main thread. */
export const health = new ThreadHealth(init.metrics, init.thread, {
  watchdog: new MainWatchdog(init.metrics),
});
const logSwitch = new LogSwitch(init.metrics.log);
const log = openLog(`listener-${init.index}`, logSwitch);
const clock = clockOf(init.ledger, new SystemClock());
const send = (message: FromListener): void => main.postMessage(message);
const journal = new JournalWriter(init.journal, () => send({ kind: 'journal_half_full' }));
const pendingCommits = new PendingCommits(journal, clock, () => send({ kind: 'commit' }));
export const channel = new ListenerChannel(new CallTable(init.calls), init.slots);
const leases = init.leasePort && openLeaseChannel(init.leasePort);
const ledger = new Ledger(init.ledger, clock, (kind, index) => leases?.send({ low: { kind, index } }));
const keys = new KeyTable(init.keys);
const callRing = new CallRingWriter(init.callRing, logSwitch);
const metrics = new ListenerMetrics(init.metrics, init.index);
/** Undefined unless spans are exported. */
const outbox = init.tracing && (await openSpanOutbox(init.tracing.outlet));

const { contents: contentsSettings, cacheBytesMax, tls, cors, ...phaseSettings } = init.settings;
const cache = new ResponseCache(init.cachePort, clock, metrics);
cache.applySettings(phaseSettings.catalog, cacheBytesMax);

const contents = new ContentsGatherer({
  budget: new ContentsBudget(init.contentsBudget),
  keys,
  clock,
  send: (bytes) => main.postMessage({ kind: 'contents', bytes } satisfies FromListener, [bytes.buffer]),
});
contents.applySettings(contentsSettings);

// `server` is defined below; the callback runs only when `connections.listen` is called, at the file's end.
const connections = new Connections((app) => server.route(app));
/** At a reload `applySettings` replaces some members, so the phases read them at each use and keep none. */
const listener = {
  clock,
  ledger,
  journal,
  pendingCommits,
  keys,
  groupNames: new GroupNames(init.groupNames),
  channel,
  leases,
  metrics,
  callRing,
  access: new ModelAccess(phaseSettings.catalog),
  connections,
  sweeps: new SlotArray<Swept>(),
  bodies: new BodyBudget(init.bodies, init.index),
  discards: new DiscardBudget(clock),
  strangerDiscards: new DiscardBudget(clock),
  bodyTurns: new BodyTurns(),
  locks: new IdempotencyChannel(init.lockPort, init.storedResponseBytesMax),
  collected: new CollectBudget(),
  cache,
  contents,
  parser: new AskPort(init.parserPort),
  ...phaseSettings,
} satisfies IntakeContext;
const tracer = new CallTracer(init.tracing && outbox && { sampling: init.tracing.sampling, outbox });
const server = new ListenerServer(listener, cors, init.requestPrefix, tracer);

/** Applies each member of ListenerSettings. The server comes last, because it reads what was replaced. */
function applySettings(settings: ListenerSettings): void {
  const { contents: contentsSettings, cacheBytesMax, tls, cors, ...others } = settings;
  // Does not compile if ListenerSettings has a member that is neither named above nor in the context.
  others satisfies Pick<IntakeContext, keyof typeof others>;
  Object.assign(listener, others, { access: new ModelAccess(others.catalog) });
  cache.applySettings(others.catalog, cacheBytesMax);
  contents.applySettings(contentsSettings);
  server.onSettings(cors);
  if (!connections.replaceTls(tls))
    log.error('the certificate cannot be used; the one before stays in force');
}

/** Cuts all calls. Ends the thread when they are settled, or after CUT_CALLS_WAIT_MS_MAX. */
function close(): void {
  setTimeout(() => exitThread(0), CUT_CALLS_WAIT_MS_MAX);
  server.close(() => exitThread(0));
}

/** Sends what is buffered, then ends the thread with `exitCode`, which the main thread gets. */
function exitThread(exitCode: number): never {
  outbox?.flush();
  contents.flush();
  channel.close();
  process.exit(exitCode);
}

process.on('uncaughtException', (error) => {
  // Some calls may be charged already: their clients were still reading. `releaseListener` of accounting.ts
  // logs how many were not.
  log.error(
    'listener failed and is being replaced; its calls were cut, and calls that were not charged yet are not billed',
    { error: error.stack },
  );
  // Takes back the charges that wait for the disk, because nobody could send the ends of their responses. An
  // exception here must not keep the connections open.
  try {
    pendingCommits.giveUpAll();
  } catch (failure) {
    log.error('charges of responses that were not sent may stay', { error: String(failure) });
  }
  // Cuts the connections, but does not wait until the calls are settled: this thread's state is not trusted
  // any more, and the main thread gives back what the calls have reserved.
  server.close(() => undefined);
  exitThread(1);
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
      pendingCommits.onCommit(message.ok);
      return;
    case 'settings':
      applySettings(message.settings);
      send({ kind: 'settings_taken', id: message.id });
      return;
    case 'clear_cache':
      cache.clear(message.modelId);
      return;
    case 'drain':
      server.drain(message, () => send({ kind: 'drained' }));
      return;
    case 'drain_late':
      connections.drainLate();
      return;
    case 'close':
      close();
  }
});

send({ kind: connections.listen(init.host, init.port, tls) ? 'listening' : 'listen_failed' });
