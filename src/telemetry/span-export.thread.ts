/**
 * Entry of the thread that exports spans, and ended calls as log records (an _item_ is either).
 * gateway/traces.ts starts the thread by this file's name if an OTLP endpoint is set. No other thread loads
 * OpenTelemetry.
 *
 * Must hold:
 * - No call waits for a collector that fails or hangs. Items for which there is no time or memory are
 *   dropped and counted (test/e2e/traces.test.ts, test/e2e/log-records.test.ts).
 * - What the senders took of a budget is given back here once (export-budget.ts).
 * - `close` drains the sources before it waits for ids, and waits for ids before it closes the exports: each
 *   step gives items to the next.
 * - A batch that cannot be unpacked is counted and logged (test/unit/gateway/traces.test.ts). Any other
 *   exception ends the thread. gateway/traces.ts logs the exception and starts no other thread.
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
import { AccountIds } from './account-ids.js';
import { LogSwitch } from './log-switch.js';
import { openLog } from './log.js';
import type { CallView } from './call-record.js';
import { otelLogRecordOf, otelSpanOf } from './otel-items.js';
import { LogRecordExport, SpanExport } from './span-export.js';
import type { FromSpanExport, SpanBatch, SpanExportInit, ToSpanExport } from './span-record.js';
import { ExportBudget } from './export-budget.js';
import { ThreadHealth } from './thread-health.js';

/** The cache of ids is cleared this often, so that an id that could not be read is asked for again. */
const IDS_CLEARED_PERIOD_MS = 10_000;
/** How long `close` waits for ids, while the main thread waits for this thread to end. */
const IDS_WAIT_MS = 500;

const { spans, logRecords, version, metrics, stripe } = workerData as SpanExportInit;
const main = parentPort;
invariant(main !== null, 'spans are exported in a thread of the gateway');

const clock = new SystemClock();
const log = openLog('traces', new LogSwitch(metrics.log));
const budgetOf = (shared: SharedArrayBuffer | undefined): ExportBudget | undefined =>
  shared && new ExportBudget(shared);
const spanBudget = budgetOf(spans);
const spanExport = spanBudget && new SpanExport(spanBudget, log);
const logBudget = budgetOf(logRecords);
const logExport = logBudget && new LogRecordExport(logBudget, log);
const scope = { name: 'tollgate', version };
// The later of two values counts, so OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES are merged last.
const resource = defaultResource()
  .merge(resourceFromAttributes({ 'service.name': 'tollgate', 'service.version': version }))
  .merge(detectResources({ detectors: [envDetector] }));
new ThreadHealth(metrics, stripe);
/** The sources: the open ports of listeners and workers. A port closes when its thread has ended. */
const sources = new Set<MessagePort>();

const accountIds = new AccountIds(
  (accounts) => main.postMessage({ kind: 'accounts', accounts } satisfies FromSpanExport),
  (records, idOf) => {
    // Given back only after the wait for ids, so that waiting spans count as in flight and are bounded.
    spanBudget?.giveBack(records.length);
    const environment = {
      resource,
      scope,
      offsetMs: clock.wallMs() - clock.monotonicMs(),
      accountIdOf: idOf,
    };
    for (const record of records) spanExport?.offer(otelSpanOf(record, environment));
  },
);
setInterval(() => accountIds.forget(), IDS_CLEARED_PERIOD_MS).unref();

function addBatch(batch: SpanBatch): void {
  const records = spanExport?.read(batch) ?? [];
  if (records.length > 0) accountIds.add(records);
}

/** Reads the spans of one listener or worker until its port closes. */
function addSource(port: MessagePort): void {
  sources.add(port);
  port.on('message', addBatch);
  port.on('close', () => sources.delete(port));
}

/**
 * Reads the batches that are still in the ports. The sources have ended when the main thread sends `close`,
 * but the event loop may have brought `close` before their last batches.
 */
function drainSources(): void {
  for (const port of sources) {
    for (;;) {
      const received = receiveMessageOnPort(port);
      if (received === undefined) break;
      addBatch(received.message as SpanBatch);
    }
  }
}

/** `lines` has `count` lines of JSON, without a newline at the end. */
function exportCalls(count: number, lines: string): void {
  logBudget?.giveBack(count);
  const environment = { resource, scope, observedMs: clock.wallMs() };
  for (const line of lines.split('\n'))
    logExport?.offer(otelLogRecordOf(JSON.parse(line) as CallView, environment));
}

/** Sends all items, then ends the thread by `exit`, because open ports and sockets keep it alive. */
async function close(): Promise<void> {
  drainSources();
  await accountIds.releaseAll(IDS_WAIT_MS);
  await Promise.all([spanExport?.close(), logExport?.close()]);
  process.exit(0);
}

main.on('message', (message: ToSpanExport) => {
  switch (message.kind) {
    case 'source':
      addSource(message.port);
      return;
    case 'calls':
      exportCalls(message.count, message.lines);
      return;
    case 'ids':
      accountIds.onIds(message.ids);
      return;
    case 'close':
      void close();
      return;
  }
  message satisfies never;
});
