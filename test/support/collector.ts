/**
 * An OTLP/HTTP receiver for tests: takes spans and log records as JSON, as a collector does on its port 4318,
 * or does what a bad one does.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { eventually } from './gateway.js';
import type { Scope } from './mock.js';

type Value =
  | { readonly stringValue: string }
  | { readonly intValue: number | string }
  | { readonly doubleValue: number }
  | { readonly boolValue: boolean };

interface Attribute {
  readonly key: string;
  readonly value: Value;
}

interface OtlpLogRecord {
  readonly timeUnixNano: string;
  readonly observedTimeUnixNano: string;
  readonly severityNumber: number;
  readonly severityText: string;
  readonly body: { readonly stringValue: string };
  readonly eventName: string;
  readonly attributes: readonly Attribute[];
}

interface LogsRequest {
  readonly resourceLogs: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] };
    readonly scopeLogs: readonly {
      readonly scope: { readonly name: string };
      readonly logRecords: readonly OtlpLogRecord[];
    }[];
  }[];
}

interface OtlpSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly traceState?: string;
  readonly flags: number;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly Attribute[];
  readonly events: readonly { readonly name: string; readonly timeUnixNano: string }[];
  readonly status: { readonly code: number };
}

interface ExportRequest {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] };
    readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[];
  }[];
}

type Attributes = Readonly<Record<string, string | number | boolean>>;

export interface ReceivedSpan extends Omit<OtlpSpan, 'attributes'> {
  readonly attributes: Attributes;
  readonly resource: Attributes;
}

export interface ReceivedLogRecord extends Omit<OtlpLogRecord, 'attributes' | 'body'> {
  readonly attributes: Attributes;
  readonly resource: Attributes;
  readonly body: string;
  readonly scope: string;
}

export const KIND_SERVER = 2;
export const KIND_CLIENT = 3;
export const STATUS_ERROR = 2;

/** `hang` takes a request and never answers. */
export type CollectorMode = 'take' | 'fail' | 'hang';

export class Collector {
  readonly spans: ReceivedSpan[] = [];
  readonly logRecords: ReceivedLogRecord[] = [];
  /** Whole texts of the requests. */
  readonly bodies: string[] = [];
  requests = 0;
  mode: CollectorMode = 'take';
  url = '';
  /** From then on there is nobody at the address. */
  close: () => void = () => undefined;

  async onRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    this.requests += 1;
    if (this.mode === 'hang') return;
    const text = Buffer.concat(parts).toString();
    if (this.mode === 'take' && request.url === '/v1/logs') this.#takeLogs(text);
    else if (this.mode === 'take') this.#take(text);
    response.writeHead(this.mode === 'take' ? 200 : 500, { 'content-type': 'application/json' });
    response.end('{}');
  }

  /** The spans of the trace, once there are so many. */
  trace(traceId: string, spans: number): Promise<ReceivedSpan[]> {
    return eventually(`${spans} spans of ${traceId}`, () => {
      const found = this.spans.filter((span) => span.traceId === traceId);
      return found.length >= spans ? found : undefined;
    });
  }

  #takeLogs(text: string): void {
    this.bodies.push(text);
    for (const { resource, scopeLogs } of (JSON.parse(text) as LogsRequest).resourceLogs)
      for (const { scope, logRecords } of scopeLogs)
        for (const record of logRecords)
          this.logRecords.push({
            ...record,
            body: record.body.stringValue,
            attributes: plain(record.attributes),
            resource: plain(resource.attributes),
            scope: scope.name,
          });
  }

  #take(text: string): void {
    this.bodies.push(text);
    for (const { resource, scopeSpans } of (JSON.parse(text) as ExportRequest).resourceSpans)
      for (const { spans } of scopeSpans)
        for (const span of spans)
          this.spans.push({
            ...span,
            attributes: plain(span.attributes),
            resource: plain(resource.attributes),
          });
  }
}

function plain(attributes: readonly Attribute[]): Attributes {
  return Object.fromEntries(
    attributes.map(({ key, value }) => {
      const [[kind, held]] = Object.entries(value) as [[string, string | number | boolean]];
      return [key, kind === 'intValue' ? Number(held) : held];
    }),
  );
}

export async function startCollector(t: Scope): Promise<Collector> {
  const collector = new Collector();
  const server = createServer((request, response) => void collector.onRequest(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  collector.close = () => {
    server.closeAllConnections();
    server.close();
  };
  t.teardown(() => collector.close());
  collector.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return collector;
}
