/**
 * One attempt of a call that came by another door than chat: which body the upstream gets, and which reader
 * its response gets. If the upstream speaks the door's protocol, the bytes pass. Otherwise they are
 * translated: the call goes out as a chat completion, and its response comes back in the door's protocol.
 * attempt.ts makes a DoorAttempt for each such attempt, in the upstream worker. For a large body
 * large-translation.ts calls `exactBody`, `readsExtras` and `inCallersWords`, in a counter thread.
 *
 * Must hold: the usage in a translated response is that which is billed, in the form of
 * providers/provider-usage.ts, whether the upstream reported the tokens or the gateway counted them
 * (test/unit/upstream/door-call.test.ts). A passed body reaches the upstream byte for byte but for the
 * model's name, and a translated response is valid in the door's protocol (test/e2e/messages.test.ts,
 * test/e2e/responses.test.ts).
 */
import type { UpstreamRequest } from '../channel/messages.js';
import { asBuffer } from '../core/bytes.js';
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { exactJson, exactJsonText, LONG_INTEGER } from '../core/exact-json.js';
import { isRecord, type Members, parsedJson } from '../core/json.js';
import type { Usage } from '../core/token-counts.js';
import { callersPath } from '../doors/callers-path.js';
import { dialectAt } from '../doors/dialects.js';
import type { Dialect, DoorCall, DoorStream, Translator } from '../doors/door.js';
import type { HttpFault } from '../http1/http-client.js';
import { forEachEvent } from '../protocol/sse.js';
import { usageMember } from '../providers/provider-usage.js';
import { FieldError, type PassedCall, ProviderError } from '../providers/provider.js';
import { invalidResponseFailure, budgetFailure, type AttemptFailure } from './error-mapping.js';
import { inNamesOf } from './upstream-body.js';
import { PassedStreamReader } from './passed-stream-reader.js';
import {
  type ReaderOwner,
  ResponseReader,
  type ResponseBodyReader,
  type ResponseOutcome,
  type ResponseSink,
} from './response-reader.js';
import { StreamReader } from './stream-reader.js';
import type { UpstreamTarget } from './target.js';
import { reportIn, tokensOfReport } from './usage-shapes.js';

export interface DoorAttempt {
  /**
   * The translated body. Undefined if the bytes pass: then the upstream gets the body of the call, with the
   * upstream's name of the model. Also undefined if a counter thread translates the body.
   */
  readonly body: string | undefined;
  /**
   * To be called when a counter thread has translated the body, before `openReader`. `members`: those of the
   * body as the caller sent it, without the conversation. Absent if the bytes pass.
   */
  readonly onTranslated?: (members: Members) => void;
  /** The path of the request; undefined for the target's own path, or if the provider makes the path. */
  readonly path: string | undefined;
  /** Set if the bytes pass: what ProviderClient has to know of the call. */
  readonly passed: PassedCall | undefined;
  /** The call only counts tokens, so its failure does not count against the upstream's breaker. */
  readonly isCount?: true | undefined;
  /**
   * Called once, when a good response begins. When the reader calls `complete`, `owner.meter` has the report
   * of usage and all of the text, from which the bill is made.
   */
  openReader(owner: ReaderOwner): ResponseBodyReader;
  /** The fault as the caller gets it: with the member names of the door. */
  inDoorsNames(fault: HttpFault): HttpFault;
}

type BodySize = 'small' | 'large';

/**
 * Throws a FieldError if the upstream cannot serve the door, or its protocol cannot express the call.
 * `size`: `large` if isLargeTranslation (large-call.ts) is true of request and target. Then the upstream can
 * serve the door and a counter thread translates the body, so nothing is thrown, and the caller calls
 * `onTranslated` later.
 */
export function doorAttemptOf(
  request: UpstreamRequest,
  target: UpstreamTarget,
  clock: Clock,
  size: BodySize,
): DoorAttempt {
  const dialect = dialectAt(request.door);
  invariant(dialect !== undefined, 'a call comes by a door that is in the table');
  const path = target.doors[dialect.name];
  if (path !== undefined) return new PassedAttempt(dialect, path, request);
  if (dialect.translator === undefined || dialect.isCount === true)
    throw new FieldError('model', `is on an upstream that does not serve POST ${dialect.name}`);
  return new TranslatedAttempt(dialect.translator, request, target, clock, size);
}

class PassedAttempt implements DoorAttempt {
  readonly body = undefined;
  readonly path: string | undefined;
  readonly passed: PassedCall;
  readonly isCount: true | undefined;
  readonly #dialect: Dialect;
  readonly #request: UpstreamRequest;

  constructor(dialect: Dialect, path: string, request: UpstreamRequest) {
    // The path is empty if the provider makes it: UpstreamTarget.doors. `betas`: the header `anthropic-beta`.
    this.path = path === '' ? undefined : path;
    this.passed = { door: dialect.name, stream: request.stream, betas: request.betas };
    this.isCount = dialect.isCount;
    this.#dialect = dialect;
    this.#request = request;
  }

  openReader(owner: ReaderOwner): ResponseBodyReader {
    const { sink, outcome, meter, budget } = owner;
    const { stream, includeUsage, choices } = this.#request;
    if (!stream) return new ResponseReader(outcome, meter, budget, this.#dialect);
    // Streams of legacy completions have no judge: StreamReader reads their events as those of chat.
    const judge = this.#dialect.openJudge?.();
    return judge === undefined
      ? new StreamReader(sink, outcome, meter, includeUsage, choices)
      : new PassedStreamReader(owner, judge);
  }

  inDoorsNames(fault: HttpFault): HttpFault {
    return fault;
  }
}

class TranslatedAttempt implements DoorAttempt {
  readonly body: string | undefined;
  readonly path = undefined;
  readonly passed = undefined;
  readonly #translator: Translator;
  /** If the body is large, `body` is empty until `onTranslated`. */
  #call: DoorCall;
  /** How many responses the call asks for (`n`). */
  readonly #choices: number;
  /**
   * The chat completion, by which `inDoorsNames` finds the caller's names. Empty for a large body: the
   * counter thread has put them into the fault, which comes without `field`.
   */
  readonly #chat: Members;

  constructor(
    translator: Translator,
    request: UpstreamRequest,
    target: UpstreamTarget,
    clock: Clock,
    size: BodySize,
  ) {
    const isLarge = size === 'large';
    const body = isLarge ? {} : bodyOf(request);
    const model = modelIn(body);
    const { requestId, stream } = request;
    const { provider, thoughtsBack, memberNames } = target;
    this.#translator = translator;
    this.#call = { requestId, model, stream, body, nowMs: clock.wallMs(), thoughtsBack };
    this.#choices = request.choices;
    if (isLarge) {
      this.#chat = {};
      return;
    }
    const exact = exactBody(body, request.body, translator);
    this.#chat = translator.toChat(exact, { extras: readsExtras(provider), thoughtsBack });
    const chat = { ...this.#chat, model: target.model ?? model };
    this.body = exactJsonText(inNamesOf(memberNames, chat));
  }

  onTranslated(members: Members): void {
    this.#call = { ...this.#call, body: members, model: modelIn(members) };
  }

  openReader(owner: ReaderOwner): ResponseBodyReader {
    const { sink, outcome, meter, budget } = owner;
    if (!this.#call.stream)
      return new ResponseReader(new WholeTranslation(owner, this.#translator, this.#call), meter, budget);
    const stream = new StreamTranslation(sink, outcome, this.#translator.openStream(this.#call));
    // The reader must relay the usage, whatever the caller asked for: the door's own usage is made from it.
    const includeUsage = true;
    return new StreamReader(stream, stream, meter, includeUsage, this.#choices);
  }

  inDoorsNames(fault: HttpFault): HttpFault {
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
 * images and files in a message of a tool. The gateway's own translators (providers/) read them. OpenAI's
 * protocol, which Azure speaks too, has none of them.
 */
export function readsExtras(provider: UpstreamTarget['provider']): boolean {
  return provider !== undefined && provider.name !== 'azure';
}

function modelIn({ model }: Members): string {
  return typeof model === 'string' ? model : '';
}

/** Translates a chat completion that is not streamed, between its reader and the attempt. */
class WholeTranslation implements ResponseOutcome {
  readonly #owner: ReaderOwner;
  readonly #translator: Translator;
  readonly #call: DoorCall;

  constructor(owner: ReaderOwner, translator: Translator, call: DoorCall) {
    this.#owner = owner;
    this.#translator = translator;
    this.#call = call;
  }

  onBegin(): void {
    this.#owner.outcome.onBegin();
  }

  complete(response: Uint8Array): void {
    const { outcome, meter, budget } = this.#owner;
    const members = parsedJson(asBuffer(response).toString());
    if (!isRecord(members)) {
      outcome.reject(invalidResponseFailure('no JSON object'));
      return;
    }
    const { reported } = meter;
    // Throws only what `failureOf` knows, or for a bug.
    const translatedWith = (usage: Usage | undefined): Buffer => {
      members.usage = usage === undefined ? undefined : usageMember(usage);
      return Buffer.from(this.#translator.fromChat(members, this.#call));
    };
    let translated: Buffer;
    try {
      translated = translatedWith(reported);
    } catch (error) {
      // `isOurs` keeps the failure from the breaker: a stop sequence of the caller may have cut the arguments
      // of a tool. In a stream that does no harm, because arguments pass as they are.
      outcome.reject({ ...failureOf(error), isOurs: true });
      return;
    }
    // `grow` by less than 0 gives bytes back.
    if (budget.grow(translated.length - response.length))
      // `usageOf` (call-usage.ts) returns this same object if it believes the report. Any other usage was
      // counted, and the response is translated again with it. That cannot throw, because the first
      // translation did not: the second one runs from a promise, with more of the stack left. The second
      // text may be some digits longer, which the budget does not count.
      outcome.complete((usage) => (usage === reported ? translated : translatedWith(usage)));
    else outcome.reject(budgetFailure());
  }

  reject(failure: AttemptFailure): void {
    this.#owner.outcome.reject(failure);
  }
}

/** Translates a streamed chat completion, between its reader and the session. */
class StreamTranslation implements ResponseSink, ResponseOutcome {
  readonly #sink: ResponseSink;
  readonly #outcome: ResponseOutcome;
  readonly #stream: DoorStream;
  #hasBegun = false;
  /** The stream was rejected. The reader goes on after a chunk that could not be translated, to no effect. */
  #isOver = false;

  constructor(sink: ResponseSink, outcome: ResponseOutcome, stream: DoorStream) {
    this.#sink = sink;
    this.#outcome = outcome;
    this.#stream = stream;
  }

  relay(events: Uint8Array): void {
    if (this.#isOver) return;
    let doorEvents = '';
    try {
      forEachEvent(asBuffer(events), (_start, _end, data) => {
        const chunk = data === undefined ? undefined : parsedJson(data);
        if (!isRecord(chunk)) return;
        const usage = tokensOfReport(reportIn(chunk));
        // Neither an impossible report nor an empty report is billed, so the client gets neither.
        if (typeof usage === 'object') chunk.usage = usageMember(usage);
        else if (chunk.usage !== undefined) chunk.usage = undefined;
        doorEvents += this.#stream.push(chunk);
      });
    } catch (error) {
      // As in event-reader.ts: while the client has no byte, another upstream may still respond.
      if (this.#hasBegun) this.#send(doorEvents);
      // `isOurs`: the upstream has served the call. What was relayed is charged; the breaker stays as it is.
      this.reject({ ...failureOf(error), isOurs: true });
      return;
    }
    this.#send(doorEvents);
  }

  #send(doorEvents: string): void {
    if (doorEvents === '') return;
    if (!this.#hasBegun) this.#outcome.onBegin();
    this.#hasBegun = true;
    this.#sink.relay(Buffer.from(doorEvents));
  }

  crash(error: unknown): void {
    this.#sink.crash(error);
  }

  onBegin(): void {
    // `relay` calls the attempt's `onBegin` in place of the reader: the first chunk may translate to nothing
    // (Azure's has no choices), and then the client has no byte yet.
  }

  /**
   * Sends the door's last events in place of `[DONE]`. They may fail, because what the DoorStream has kept
   * may be too deep to write. Then the session cuts the response, which must have begun. It has: a DoorStream
   * keeps something only of chunks that make events too. Without such chunks `onBegin` is never called, and
   * the last events are the whole response.
   */
  complete(): void {
    if (this.#isOver) return;
    this.#outcome.complete((usage) => {
      try {
        const usageEvents = this.#stream.push({ choices: [], usage: usageMember(usage) });
        return Buffer.from(usageEvents + this.#stream.end());
      } catch (error) {
        return failureOf(error);
      }
    });
  }

  reject(failure: AttemptFailure): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#outcome.reject(failure);
  }
}

/** The failure of a response that the door's protocol cannot express. Throws any other error: it is a bug. */
function failureOf(error: unknown): AttemptFailure {
  // The stack ran out. A caller can cause that, because a model writes what callers ask for.
  if (error instanceof RangeError) return { ...invalidResponseFailure('nested too deeply'), isOurs: true };
  if (!(error instanceof ProviderError)) throw error;
  return invalidResponseFailure(error.message);
}

/**
 * The parsed body, which is not large (isLargeTranslation). The door has checked in the listener that it is a
 * JSON object.
 */
function bodyOf({ body }: UpstreamRequest): Members {
  const parsed = parsedJson(body);
  invariant(isRecord(parsed), 'a body is a JSON object');
  return parsed;
}

/**
 * The body as `toChat` takes it: long integers of its `exactMembers` keep their digits (see Translator).
 * `body` is the parsed `text`, and stays as it is, because responses may repeat members of it.
 */
export function exactBody(body: Members, text: string, { exactMembers }: Translator): Members {
  if (exactMembers === undefined || !LONG_INTEGER.test(text)) return body;
  const exact = exactJson(text);
  if (!isRecord(exact)) return body;
  const names = exactMembers.filter((name) => Object.hasOwn(body, name));
  return { ...body, ...Object.fromEntries(names.map((name) => [name, exact[name]])) };
}
