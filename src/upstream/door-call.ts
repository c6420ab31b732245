/**
 * One attempt of a call that came by another door than chat: which body the upstream gets, and which reader
 * its response. If the upstream speaks the door's protocol, the bytes pass. Otherwise they are translated:
 * the call goes out as a chat completion, and its response comes back in the door's protocol. attempt.ts
 * makes one for each such attempt. Upstream worker.
 *
 * Must hold: the usage in a translated response is that which is billed, in the form of
 * providers/chat-writer.ts, however the upstream told it, if its reports tell the whole
 * (test/unit/upstream/door-call.test.ts). A passed body reaches the upstream byte for byte but for the
 * model's name, and a translated response is valid in the door's protocol (test/e2e/messages.test.ts,
 * responses.test.ts).
 */
import type { UpstreamRequest } from '../channel/messages.js';
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { exactJson, exactJsonText, LONG_INTEGER } from '../core/exact-json.js';
import { isRecord, parsedJson } from '../core/json.js';
import { callersPath } from '../doors/callers-path.js';
import { dialectAt } from '../doors/dialects.js';
import type { Dialect, DoorCall, DoorStream, Translator } from '../doors/door.js';
import type { HttpFault } from '../http1/http-client.js';
import { forEachEvent } from '../protocol/sse.js';
import type { PassedCall } from '../providers/provider.js';
import { usageMember } from '../providers/chat-writer.js';
import { FieldError, ProviderError } from '../providers/provider.js';
import { garbageFailure, budgetFailure, type AttemptFailure } from './error-mapping.js';
import { inNamesOf } from './upstream-body.js';
import { PassedStreamReader } from './passed-stream-reader.js';
import {
  ResponseReader,
  type ResponseBodyReader,
  type ResponseBudget,
  type ResponseOutcome,
  type ResponseSink,
} from './response-reader.js';
import { StreamReader } from './stream-reader.js';
import type { UpstreamTarget } from './target.js';
import type { UsageMeter } from './usage-meter.js';
import { reportIn, tokensOfReport } from './usage-shapes.js';

/** What a reader needs of its attempt and session. */
export interface DoorReaderOwner {
  readonly sink: ResponseSink;
  readonly outcome: ResponseOutcome;
  readonly meter: UsageMeter;
  readonly budget: ResponseBudget;
}

export interface DoorAttempt {
  /** Undefined if the upstream gets the body of the call, with its own name of the model. */
  readonly body: string | undefined;
  /** Called if another thread has translated the body. `callers` are its members but the conversation. */
  readonly written?: (callers: Readonly<Record<string, unknown>>) => void;
  /** Undefined for the upstream's usual path. */
  readonly path: string | undefined;
  /** Set if the bytes pass. */
  readonly passed: PassedCall | undefined;
  readonly isCount?: true | undefined;
  openReader(owner: DoorReaderOwner): ResponseBodyReader;
  /** The fault as the caller gets it: with the member names of the door. */
  named(fault: HttpFault): HttpFault;
}

/**
 * Throws a FieldError if the upstream's protocol cannot express the call. `isLarge`: another thread
 * translates the body, and then `written` is called.
 */
export function doorAttemptOf(
  request: UpstreamRequest,
  target: UpstreamTarget,
  clock: Clock,
  isLarge: boolean,
): DoorAttempt {
  const dialect = dialectAt(request.door);
  invariant(dialect !== undefined, 'a call comes by a door that is in the table');
  const path = target.doors[dialect.name];
  if (path !== undefined) return new PassedAttempt(dialect, path, request);
  if (dialect.translator === undefined || dialect.isCount === true)
    throw new FieldError('model', `is on an upstream that does not serve POST ${dialect.name}`);
  return new TranslatedAttempt(dialect.translator, request, target, clock, isLarge);
}

class PassedAttempt implements DoorAttempt {
  readonly body = undefined;
  readonly path: string | undefined;
  readonly passed: PassedCall;
  readonly isCount: true | undefined;
  readonly #dialect: Dialect;
  readonly #request: UpstreamRequest;

  constructor(dialect: Dialect, path: string, request: UpstreamRequest) {
    this.path = path === '' ? undefined : path;
    this.passed = { door: dialect.name, stream: request.stream, betas: request.betas };
    this.isCount = dialect.isCount;
    this.#dialect = dialect;
    this.#request = request;
  }

  openReader({ sink, outcome, meter, budget }: DoorReaderOwner): ResponseBodyReader {
    const { stream, includeUsage, choices } = this.#request;
    if (!stream) return new ResponseReader(outcome, meter, budget, this.#dialect);
    const judge = this.#dialect.openJudge?.();
    return judge === undefined
      ? new StreamReader(sink, outcome, meter, includeUsage, choices)
      : new PassedStreamReader(sink, outcome, meter, judge, budget);
  }

  named(fault: HttpFault): HttpFault {
    return fault;
  }
}

class TranslatedAttempt implements DoorAttempt {
  readonly body: string | undefined;
  readonly path = undefined;
  readonly passed = undefined;
  readonly #translator: Translator;
  #call: DoorCall;
  readonly #choices: number;
  readonly #chat: Readonly<Record<string, unknown>>;

  constructor(
    translator: Translator,
    request: UpstreamRequest,
    target: UpstreamTarget,
    clock: Clock,
    isLarge: boolean,
  ) {
    const body = isLarge ? {} : bodyOf(request, translator);
    const model = modelIn(body);
    const { requestId, stream } = request;
    this.#translator = translator;
    this.#call = { requestId, model, stream, body, nowMs: clock.wallMs() };
    this.#choices = request.choices;
    this.#chat = isLarge ? {} : translator.toChat(body, readsExtras(target.provider));
    const chat = { ...this.#chat, model: target.model ?? model };
    this.body = isLarge ? undefined : exactJsonText(inNamesOf(target.memberNames, chat));
  }

  written(callers: Readonly<Record<string, unknown>>): void {
    this.#call = { ...this.#call, body: callers, model: modelIn(callers) };
  }

  openReader({ sink, outcome, meter, budget }: DoorReaderOwner): ResponseBodyReader {
    if (!this.#call.stream)
      return new ResponseReader(
        new WholeTranslation(outcome, budget, meter, this.#translator, this.#call),
        meter,
        budget,
      );
    const stream = new StreamTranslation(sink, outcome, meter, this.#translator.openStream(this.#call));
    return new StreamReader(stream, stream, meter, true, this.#choices);
  }

  named(fault: HttpFault): HttpFault {
    const { field, message } = fault;
    if (field === undefined) return fault;
    return { ...fault, message: inCallersWords(this.#translator, this.#chat, field, message) };
  }
}

/** `message`, which begins with the member `field` of `chat`, with the caller's name of that member. */
export function inCallersWords(
  translator: Translator,
  chat: unknown,
  field: string,
  message: string,
): string {
  return callersPath(chat, field, translator.names) + message.slice(field.length);
}

/**
 * Whether the upstream reads `thinking_blocks`, `thinking` and `cache_control` in a chat completion, and
 * images and files in a message of a tool.
 */
export function readsExtras(provider: UpstreamTarget['provider']): boolean {
  return provider !== undefined && provider.name !== 'azure';
}

function modelIn({ model }: Readonly<Record<string, unknown>>): string {
  return typeof model === 'string' ? model : '';
}

/** Translates a non-streamed chat completion, between its reader and the attempt. */
class WholeTranslation implements ResponseOutcome {
  readonly #outcome: ResponseOutcome;
  readonly #budget: ResponseBudget;
  readonly #meter: UsageMeter;
  readonly #translator: Translator;
  readonly #call: DoorCall;

  constructor(
    outcome: ResponseOutcome,
    budget: ResponseBudget,
    meter: UsageMeter,
    translator: Translator,
    call: DoorCall,
  ) {
    this.#outcome = outcome;
    this.#budget = budget;
    this.#meter = meter;
    this.#translator = translator;
    this.#call = call;
  }

  begun(): void {
    this.#outcome.begun();
  }

  complete(response: Uint8Array): void {
    const members = parsedJson(Buffer.from(response.buffer, response.byteOffset, response.length).toString());
    if (!isRecord(members)) {
      this.#outcome.reject(garbageFailure('no JSON object'));
      return;
    }
    const usage = this.#meter.reported;
    let text: Buffer;
    try {
      members.usage = usage === undefined ? undefined : usageMember(usage);
      text = Buffer.from(this.#translator.fromChat(members, this.#call));
    } catch (error) {
      // A caller can cause it: a stop sequence within the arguments of a tool cuts them.
      this.#outcome.reject({ ...failureOf(error), ours: true });
      return;
    }
    if (this.#budget.grow(text.length - response.length)) this.#outcome.complete(text);
    else this.#outcome.reject(budgetFailure());
  }

  reject(failure: AttemptFailure): void {
    this.#outcome.reject(failure);
  }
}

/** Translates a streamed chat completion, between its reader and the session. */
class StreamTranslation implements ResponseSink, ResponseOutcome {
  readonly #sink: ResponseSink;
  readonly #outcome: ResponseOutcome;
  readonly #meter: UsageMeter;
  readonly #stream: DoorStream;
  #begun = false;
  /** The reader goes on after a chunk that could not be translated. */
  #isOver = false;

  constructor(sink: ResponseSink, outcome: ResponseOutcome, meter: UsageMeter, stream: DoorStream) {
    this.#sink = sink;
    this.#outcome = outcome;
    this.#meter = meter;
    this.#stream = stream;
  }

  relay(events: Uint8Array): void {
    if (this.#isOver) return;
    let text = '';
    try {
      forEachEvent(Buffer.from(events.buffer, events.byteOffset, events.length), (_start, _end, data) => {
        const chunk = data === undefined ? undefined : parsedJson(data);
        if (!isRecord(chunk)) return;
        const told = tokensOfReport(reportIn(chunk));
        if (typeof told === 'object') chunk.usage = usageMember(told);
        else if (chunk.usage !== undefined) chunk.usage = undefined;
        text += this.#stream.push(chunk);
      });
    } catch (error) {
      this.reject(failureOf(error));
      return;
    }
    if (text === '') return;
    if (!this.#begun) this.#outcome.begun();
    this.#begun = true;
    this.#sink.relay(Buffer.from(text));
  }

  /** The first chunk may translate to nothing (Azure's has no choices): the client has no byte then. */
  begun(): void {
    // `relay` says so.
  }

  /** Sends the door's last events in place of `[DONE]`. */
  complete(): void {
    if (this.#isOver) return;
    // The report may have come in no event that was relayed.
    const { reported } = this.#meter;
    const usage = reported === undefined ? undefined : usageMember(reported);
    const last = this.#stream.push({ choices: [], usage });
    this.#outcome.complete(Buffer.from(last + this.#stream.end()));
  }

  reject(failure: AttemptFailure): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#outcome.reject(failure);
  }
}

/** For a response that the door's protocol cannot express. Any other exception is a bug, and thrown. */
function failureOf(error: unknown): AttemptFailure {
  if (!(error instanceof ProviderError)) throw error;
  return garbageFailure(error.message);
}

/** The parsed body. The listener has checked it. */
function bodyOf(
  { body, largeBody }: UpstreamRequest,
  translator: Translator,
): Readonly<Record<string, unknown>> {
  const text = largeBody === undefined ? body : Buffer.from(largeBody).toString();
  const parsed = parsedBody(text, translator);
  invariant(isRecord(parsed), 'a body is a JSON object');
  return parsed;
}

/** The body as `toChat` takes it: integers of its `exactMember` keep their digits. */
export function parsedBody(text: string, { exactMember }: Translator): unknown {
  const body = parsedJson(text);
  if (exactMember === undefined || !isRecord(body) || !LONG_INTEGER.test(text)) return body;
  const exact = exactJson(text);
  return isRecord(exact) ? { ...body, [exactMember]: exact[exactMember] } : body;
}
