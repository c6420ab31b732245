/**
 * Entry of the thread that exports spans; started only where an OTLP endpoint is set, and the only one that loads OpenTelemetry. What
 * it does costs no call a moment: spans that it has no time or room for are dropped and counted.
 */
import { parentPort, receiveMessageOnPort, workerData, type MessagePort } from 'node:worker_threads';
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from '@opentelemetry/resources';
import { SystemClock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { LogSwitch, openLog } from './log.js';
import { otelSpanOf } from './otel-span.js';
import { AccountIds, SpanExport } from './span-export.js';
import { type FromSpanExport, type SpanExportInit, type ToSpanExport, unpackSpans } from './span-record.js';
import { SpanBudget } from './span-outbox.js';
import { ThreadHealth } from './thread-health.js';

/** The slot of a deleted account is another's some seconds later. */
const IDS_KEPT_MS = 10_000;
/** At the end the main thread has little else to do. */
const IDS_WAIT_MS = 500;

const { budget: shared, version, metrics, thread } = workerData as SpanExportInit;
const main = parentPort;
invariant(main !== null, 'spans are exported in a thread of the gateway');

const clock = new SystemClock();
const budget = new SpanBudget(shared);
const log = openLog('traces', new LogSwitch(metrics.log));
const spanExport = new SpanExport(budget, log);
// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word.
const resource = defaultResource()
  .merge(resourceFromAttributes({ 'service.name': 'tollgate', 'service.version': version }))
  .merge(detectResources({ detectors: [envDetector] }));
new ThreadHealth(metrics, thread);
const sources = new Set<MessagePort>();
setInterval(() => accountIds.forget(), IDS_KEPT_MS).unref();

const accountIds: AccountIds = new AccountIds(
  (accounts) => main.postMessage({ kind: 'accounts', accounts } satisfies FromSpanExport),
  (records) => {
    // What waits for ids is still on its way.
    budget.giveBack(records.length);
    const around = {
      resource,
      version,
      offsetMs: clock.wallMs() - clock.monotonicMs(),
      accountIdOf: (account: Parameters<AccountIds['idOf']>[0]) => accountIds.idOf(account),
    };
    for (const record of records) spanExport.offer(otelSpanOf(record, around));
  },
);

function addSource(port: MessagePort): void {
  sources.add(port);
  port.on('message', (bytes: Uint8Array) => accountIds.add(unpackSpans(bytes)));
  port.on('close', () => sources.delete(port));
}

/** What the sources sent before they ended may still stand in their ports, which have no order with the main thread's. */
function drainSources(): void {
  for (const port of sources) {
    for (;;) {
      const received = receiveMessageOnPort(port);
      if (received === undefined) break;
      accountIds.add(unpackSpans(received.message as Uint8Array));
    }
  }
}

async function close(): Promise<void> {
  drainSources();
  await accountIds.finish(IDS_WAIT_MS);
  await spanExport.close();
  process.exit(0);
}

main.on('message', (message: ToSpanExport) => {
  switch (message.kind) {
    case 'source':
      addSource(message.port);
      return;
    case 'ids':
      accountIds.learn(message.ids);
      return;
    case 'close':
      void close();
  }
});
