/**
 * Spans as the JSON of OTLP/HTTP, byte by byte: see line-buffer.ts. Exporting thread.
 *
 * What spans of the same kind have in common, names and most attributes, is encoded once and then copied. The SDK's own serializer makes
 * some hundred objects a span and took two thirds of the exporting thread's time (measured); a test holds the two against each other.
 */
import type { Attributes, AttributeValue, HrTime } from '@opentelemetry/api';
import {
  JsonTraceSerializer,
  type IExportTraceServiceResponse,
  type ISerializer,
} from '@opentelemetry/otlp-transformer';
import type { ReadableSpan } from '@opentelemetry/sdk-trace';
import { invariant } from '../core/errors.js';
import { LineBuffer } from './line-buffer.js';
import { RecordedSpan } from './otel-span.js';
import { SPAN_OF_CALL, type SpanRecord } from './span-record.js';

/** Of OTLP's flags: that it is known whether the parent is another process's, and that it is. */
const HAS_IS_REMOTE = 0x100;
const IS_REMOTE = 0x200;
/** An upstream names the model of its response as it likes; 1 KB each. */
const KINDS_MAX = 1_000;
const NANOS_DIGITS = 9;

const piece = (text: string): Uint8Array => Buffer.from(text);
const TRACE_ID = piece('{"traceId":"');
const SPAN_ID = piece('","spanId":"');
const PARENT = piece('","parentSpanId":"');
const STATE = piece('","traceState":');
const START = piece(',"startTimeUnixNano":"');
const END = piece('","endTimeUnixNano":"');
const ATTRIBUTES = piece('","attributes":[');
const EVENTS = piece('],"droppedAttributesCount":0,"events":[');
const EVENT_END = piece('","droppedAttributesCount":0}');
const FLAGS = piece('],"droppedEventsCount":0,"links":[],"droppedLinksCount":0,"flags":');
const SPAN_END = piece('}');
const INT = piece('{"intValue":');
const DOUBLE = piece('{"doubleValue":');
const VALUE_END = piece('}}');
const NEXT = piece(',');

/** What many spans have in common. */
interface Kind {
  /** From the identifiers to the times. */
  readonly head: Uint8Array;
  readonly attributes: Uint8Array;
}

export class SpanJson implements ISerializer<ReadableSpan[], IExportTraceServiceResponse> {
  readonly #kinds = new Map<string, Kind>();
  readonly #keys = new Map<string, Uint8Array>();
  readonly #buffer = new LineBuffer();

  /** Of spans of this gateway alone, which have one resource and one scope. Some 2 µs a span. */
  serializeRequest(spans: ReadableSpan[]): Uint8Array | undefined {
    const [first] = spans;
    if (first === undefined) return undefined;
    const buffer = this.#buffer;
    const scope = JSON.stringify(first.instrumentationScope);
    const resource = `{"attributes":[${attributesText(first.resource.attributes)}],"droppedAttributesCount":0}`;
    buffer.bytes(
      piece(`{"resourceSpans":[{"resource":${resource},"scopeSpans":[{"scope":${scope},"spans":[`),
    );
    spans.forEach((span, index) => {
      if (index > 0) buffer.bytes(NEXT);
      invariant(span instanceof RecordedSpan, 'spans are recorded by this gateway');
      this.#write(span);
    });
    buffer.bytes(piece(']}]}]}'));
    let request: Uint8Array | undefined;
    // A copy: it is sent while the next batch is written.
    buffer.drain((bytes) => (request = Uint8Array.from(bytes)));
    return request;
  }

  deserializeResponse(bytes: Uint8Array): IExportTraceServiceResponse {
    return JsonTraceSerializer.deserializeResponse(bytes);
  }

  #write(span: RecordedSpan): void {
    const buffer = this.#buffer;
    const { record } = span;
    const kind = this.#kindOf(span);
    buffer.bytes(TRACE_ID);
    buffer.ascii(record.traceId);
    buffer.bytes(SPAN_ID);
    buffer.ascii(record.spanId);
    if (record.parentSpanId !== null) {
      buffer.bytes(PARENT);
      buffer.ascii(record.parentSpanId);
    }
    if (record.traceState === '') {
      buffer.ascii('"');
    } else {
      buffer.bytes(STATE);
      buffer.ascii(JSON.stringify(record.traceState));
    }
    buffer.bytes(kind.head);
    buffer.bytes(START);
    this.#writeTime(span.startTime);
    buffer.bytes(END);
    this.#writeTime(span.endTime);
    buffer.bytes(ATTRIBUTES);
    buffer.bytes(kind.attributes);
    this.#writeOwn(span);
    buffer.bytes(EVENTS);
    for (const { name, time } of span.events) {
      buffer.ascii(`{"attributes":[],"name":"${name}","timeUnixNano":"`);
      this.#writeTime(time);
      buffer.bytes(EVENT_END);
    }
    buffer.bytes(FLAGS);
    const isRemote = record.kind === SPAN_OF_CALL && record.parentSpanId !== null;
    buffer.number((record.flags & 0xff) | HAS_IS_REMOTE | (isRemote ? IS_REMOTE : 0));
    buffer.bytes(SPAN_END);
  }

  #writeTime([seconds, nanos]: HrTime): void {
    this.#buffer.number(seconds);
    this.#buffer.padded(nanos, NANOS_DIGITS);
  }

  #writeOwn({ ownAttributes }: RecordedSpan): void {
    const buffer = this.#buffer;
    for (const [name, value] of Object.entries(ownAttributes)) {
      buffer.bytes(this.#keyOf(name));
      if (typeof value === 'number') {
        buffer.bytes(Number.isInteger(value) ? INT : DOUBLE);
        buffer.number(value);
        buffer.bytes(VALUE_END);
      } else {
        buffer.ascii(valueText(value));
        buffer.ascii('}');
      }
    }
  }

  /** Of names there are some few. */
  #keyOf(name: string): Uint8Array {
    let bytes = this.#keys.get(name);
    if (bytes === undefined) {
      bytes = piece(`,{"key":"${name}","value":`);
      this.#keys.set(name, bytes);
    }
    return bytes;
  }

  #kindOf(span: RecordedSpan): Kind {
    const name = kindNameOf(span.record);
    let kind = this.#kinds.get(name);
    if (kind === undefined) {
      const head = { name: span.name, kind: span.kind + 1, status: span.status };
      kind = {
        head: piece(`,${JSON.stringify(head).slice(1, -1)}`),
        attributes: piece(attributesText(span.commonAttributes)),
      };
      if (this.#kinds.size >= KINDS_MAX) this.#kinds.clear();
      this.#kinds.set(name, kind);
    }
    return kind;
  }
}

/** All that name, status and common attributes are made of. */
function kindNameOf(record: SpanRecord): string {
  const { status, model, provider, stream } = record;
  return record.kind === SPAN_OF_CALL
    ? `${record.outcome}\n${status}\n${stream}\n${model}\n${provider}`
    : `\n${record.origin}\n${status}\n${record.error}\n${record.earlierTries}\n${stream}\n${model}\n${provider}\n${record.responseModel}`;
}

function attributesText(attributes: Attributes): string {
  return Object.entries(attributes)
    .map(([key, value]) => `{"key":${JSON.stringify(key)},"value":${valueText(value)}}`)
    .join(',');
}

/** Texts, numbers and booleans: other attributes have no spans of ours. */
function valueText(value: AttributeValue | undefined): string {
  if (typeof value === 'string') return `{"stringValue":${JSON.stringify(value)}}`;
  if (typeof value === 'boolean') return `{"boolValue":${value}}`;
  return Number.isInteger(value) ? `{"intValue":${Number(value)}}` : `{"doubleValue":${Number(value)}}`;
}
