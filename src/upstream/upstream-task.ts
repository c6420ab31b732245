/**
 * The long-lived task of an upstream worker. It owns the worker's clients and a channel to each listener.
 * Piscina runs it through upstream.worker.cts in a thread of its own. As the own worker of a listener it runs
 * in that listener's thread (gateway/listener-with-worker.thread.ts).
 *
 * Must hold: before a listener's channel is replaced, or the task ends, the calls of the old channel are
 * cancelled, so that each is settled (test/e2e/thread-failure.test.ts).
 */
import { SystemClock } from '../core/clock.js';
import type { ErrorRecord } from '../core/errors.js';
import { COUNT_WAIT_MS_MAX, WHOLE_RESPONSE_BYTES_UNCOUNTED } from '../core/limits.js';
import { packageVersion } from '../core/version.js';
import type { Usage } from '../core/token-counts.js';
import { AskPort, type PendingQuestion } from '../core/ask-port.js';
import { openLeaseChannel } from '../channel/lease-channel.js';
import { CallTable } from '../channel/call-table.js';
import type { FrameChannel } from '../channel/frame-port.js';
import { WorkerChannel } from '../channel/worker-channel.js';
import { LogSwitch } from '../telemetry/log-switch.js';
import { openLog } from '../telemetry/log.js';
import { openSpanOutbox } from '../telemetry/span-outbox.js';
import { ThreadHealth } from '../telemetry/thread-health.js';
import { UpstreamMetrics } from '../telemetry/metrics-writers.js';
import { CredentialTable } from './credential-table.js';
import { createStartSession } from './chat-session.js';
import { EchoClient } from './echo-client.js';
import { ErrorLog } from './error-log.js';
import type { LargeTranslated } from './large-translation.js';
import { LeftCalls } from './left-calls.js';
import { Http1Client } from '../http1/client.js';
import { ProviderClient } from '../providers/provider-client.js';
import { PROVIDERS } from '../providers/providers.js';
import { UpstreamCounters } from '../ledger/upstream-counters.js';
import { WorkerBudget } from './worker-budget.js';
import { RouteTable } from './route-table.js';
import type { SessionShared } from './session-shared.js';
import { addressOf } from './target.js';
import { UpstreamQuotas } from './upstream-quotas.js';
import type { CounterAsk, FromUpstreamWorker, ToUpstreamWorker, UpstreamTask } from './worker-messages.js';

/** Goes to the log alone: the call is billed by an estimate. */
const COUNT_LATE: ErrorRecord = { code: 'overloaded', message: `no count within ${COUNT_WAIT_MS_MAX} ms` };
/** A translation may wait as long as a count. Callers get COUNTER_BUSY in its place (error-mapping.ts). */
const TRANSLATION_LATE: ErrorRecord = {
  code: 'overloaded',
  message: 'a large body was not translated in time',
};

/**
 * Returns when the main thread sends `close`. `ownChannel` is the channel to the listener in the same thread,
 * which then is the worker's only one. Without it a channel to each listener comes by `controlPort`. An
 * uncaught exception ends the thread, and its owner starts another.
 */
export async function runUpstreamTask(task: UpstreamTask, ownChannel?: FrameChannel): Promise<void> {
  const send = (message: FromUpstreamWorker): void => task.controlPort.postMessage(message);
  const callTable = new CallTable(task.calls);
  const counter = new AskPort<CounterAsk, Usage | LargeTranslated>(task.counterPort);
  const clock = new SystemClock();
  const log = openLog(`worker-${task.index}`, new LogSwitch(task.metrics.log));
  const errors = new ErrorLog(log, clock);
  const http = new Http1Client({
    clock,
    version: packageVersion(),
    onUnsolicited: (target) =>
      errors.write(
        'error',
        target.name,
        'an upstream sent an answer that nobody asked for; for 10 minutes each connection to it carries one call',
        addressOf(target),
      ),
  });
  const metrics = new UpstreamMetrics(task.metrics, task.index);
  const leases = task.leasePort && openLeaseChannel(task.leasePort);
  const counters = new UpstreamCounters(task.upstreams, clock, task.index, (scope) =>
    leases?.send({ low: { kind: 'upstream', index: scope } }),
  );
  const quotas = new UpstreamQuotas(counters, clock, leases);
  const routes = new RouteTable(task.routes, { clock, log, metrics, quotas });
  const credentials = new CredentialTable(task.credentials, (position, generation) =>
    send({ kind: 'credential_rejected', position, generation }),
  );
  const spanOutbox = task.spanOutlet && (await openSpanOutbox(task.spanOutlet));
  const startSession = createStartSession({
    routes,
    quotas,
    http,
    echo: new EchoClient(clock),
    providers: new ProviderClient(http, clock, credentials, PROVIDERS),
    ...counterAsks(counter),
    errors,
    clock,
    metrics,
    wholeResponses: new WorkerBudget(task.responses, task.index, WHOLE_RESPONSE_BYTES_UNCOUNTED),
    leftCalls: new LeftCalls(metrics, task.leftCalls, task.index),
    spanOutbox,
  });
  const health = task.thread === undefined ? undefined : new ThreadHealth(task.metrics, task.thread);
  /** By the listener's index. */
  const channels = new Map<number, WorkerChannel>();
  if (ownChannel !== undefined) {
    // The key does not matter: an own worker gets no message `listener` (`indices` of UpstreamWorkers).
    channels.set(task.index, new WorkerChannel(ownChannel, callTable, startSession));
    // The listener in this thread ends the thread and sends no `close`, so nothing below the wait runs.
    process.once('exit', () => spanOutbox?.flush());
  }

  // Until `close`, each message is handled before the next, so a channel is never replaced half-way.
  await new Promise<void>((resolve) => {
    task.controlPort.on('message', (message: ToUpstreamWorker) => {
      switch (message.kind) {
        case 'close':
          resolve();
          return;
        case 'routes':
          routes.replace(message.routes);
          http.retain(routes.targets);
          send({ kind: 'routes_taken', id: message.id });
          return;
        case 'reset':
          routes.reset(message.model);
          return;
        case 'credentials':
          // Closes the breakers that calls without a credential have opened.
          routes.resetCredentials(credentials.replace(message.records));
          return;
        case 'listener':
          channels.get(message.index)?.cancelAll();
          channels.set(message.index, new WorkerChannel(message.channel, callTable, startSession));
      }
    });
  });

  // Calls are cancelled while their channels are still open, so that each listener learns how they ended.
  for (const channel of channels.values()) channel.cancelAll();
  for (const channel of channels.values()) channel.close();
  spanOutbox?.flush();
  health?.stop();
  counter.close();
  task.leasePort?.close();
  task.controlPort.close();
  await http.close();
}

/** How sessions ask counter threads. The casts are safe: the kind of a task decides on that of its reply. */
function counterAsks(
  counter: AskPort<CounterAsk, Usage | LargeTranslated>,
): Pick<SessionShared, 'count' | 'translate'> {
  return {
    count: (request, account) => {
      const ask = { account, task: { kind: 'count', request } } as const;
      return counter.askWithin(COUNT_WAIT_MS_MAX, COUNT_LATE, ask).reply as Promise<Usage>;
    },
    translate: (large, account) => {
      const ask = { account, task: { kind: 'translate', large } } as const;
      const question = counter.askWithin(COUNT_WAIT_MS_MAX, TRANSLATION_LATE, ask, [
        large.body.buffer as ArrayBuffer,
      ]);
      return question as PendingQuestion<LargeTranslated>;
    },
  };
}
