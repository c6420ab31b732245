/**
 * One attempt of a call that came by another door than chat: which body the upstream gets, and which reader
 * its response gets. If the upstream speaks the door's protocol, the bytes pass. Otherwise they are
 * translated: the call goes out as a chat completion, and its response comes back in the door's protocol.
 * attempt.ts makes a DoorAttempt for each such attempt, in the upstream worker. For a large body
 * large-translation.ts calls `exactBody`, `readsExtras` and `inCallersWords`, in a counter thread.
 *
 * Must hold: a passed body reaches the upstream byte for byte but for the model's name
 * (test/e2e/messages.test.ts, test/e2e/responses.test.ts). A FieldError, and a fault with a `field`, names a
 * member of the caller's own body.
 */
import type { UpstreamRequest } from '../channel/messages.js';
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { exactJson, exactJsonText, LONG_INTEGER } from '../core/exact-json.js';
import { isRecord, type Members, parsedJson } from '../core/json.js';
import { callersPath } from '../doors/callers-path.js';
import { dialectAt } from '../doors/dialects.js';
import type { Dialect, DoorCall, Translator } from '../doors/door.js';
import type { HttpFault } from '../http1/http-client.js';
import { FieldError, type PassedCall } from '../providers/provider.js';
import { translatingReader } from './door-translation.js';
import { inNamesOf } from './upstream-body.js';
import { PassedStreamReader } from './passed-stream-reader.js';
import { type ReaderOwner, ResponseReader, type ResponseBodyReader } from './response-reader.js';
import { StreamReader } from './stream-reader.js';
import type { UpstreamTarget } from './target.js';

export interface DoorAttempt {
  /** The translated body. Undefined if the bytes pass, or if a counter thread translates them. */
  readonly body: string | undefined;
  /** The path of the request; undefined for the target's own path, or if the provider makes the path. */
  readonly path: string | undefined;
  /** Set if the bytes pass and the provider makes the path: what ProviderClient has to know of the call. */
  readonly passed: PassedCall | undefined;
  /** The call only counts tokens, so its failure does not count against the upstream's breaker. */
  readonly isCount?: true | undefined;
  /** Called once, as a good response begins. At `complete`, `owner.meter` has all that is billed. */
  openReader(owner: ReaderOwner): ResponseBodyReader;
  /** The fault as the caller gets it: with the member names of the door. Absent if the bytes pass. */
  inDoorsNames?(fault: HttpFault): HttpFault;
}

/**
 * The DoorAttempt of a call of which no counter thread translates the body (isLargeTranslation of
 * large-call.ts). Throws a FieldError if the upstream cannot serve the door, or express the call.
 */
export function doorAttemptOf(request: UpstreamRequest, target: UpstreamTarget, clock: Clock): DoorAttempt {
  const dialect = dialectAt(request.door);
  invariant(dialect !== undefined, 'a call comes by a door that is in the table');
  const { name, translator, isCount } = dialect;
  const path = target.doors[name];
  if (path !== undefined) return new PassedAttempt(dialect, path, request);
  if (translator === undefined || isCount === true)
    throw new FieldError('model', `is on an upstream that does not serve POST ${name}`);
  const body = bodyOf(request);
  const { provider, thoughtsBack } = target;
  const exact = exactBody(body, request.body, translator);
  const chat = translator.toChat(exact, { extras: readsExtras(provider), thoughtsBack });
  return new TranslatedAttempt(translator, request, target, clock, body, chat);
}

/**
 * The DoorAttempt of a call whose body a counter thread has translated. `members`: those of the body as the
 * caller sent it, without the conversation.
 */
export function translatedAttemptOf(
  request: UpstreamRequest,
  target: UpstreamTarget,
  clock: Clock,
  members: Members,
): DoorAttempt {
  const translator = dialectAt(request.door)?.translator;
  invariant(translator !== undefined, 'what was translated has a translator');
  return new TranslatedAttempt(translator, request, target, clock, members, undefined);
}

class PassedAttempt implements DoorAttempt {
  readonly body = undefined;
  readonly path: string | undefined;
  readonly passed: PassedCall | undefined;
  readonly isCount: true | undefined;
  readonly #dialect: Dialect;
  readonly #request: UpstreamRequest;

  constructor(dialect: Dialect, path: string, request: UpstreamRequest) {
    // The path is empty if the provider makes it: UpstreamTarget.doors. `betas`: the header `anthropic-beta`.
    this.path = path === '' ? undefined : path;
    const { stream, betas } = request;
    this.passed = path === '' ? { door: dialect.name, stream, betas } : undefined;
    this.isCount = dialect.isCount;
    this.#dialect = dialect;
    this.#request = request;
  }

  openReader(owner: ReaderOwner): ResponseBodyReader {
    const { outcome, meter, budget } = owner;
    const { stream, includeUsage, choices } = this.#request;
    if (!stream) return new ResponseReader(outcome, meter, budget, this.#dialect);
    // Streams of legacy completions have no judge: StreamReader reads their events as those of chat.
    const judge = this.#dialect.openJudge?.();
    return judge === undefined
      ? new StreamReader(owner, includeUsage, choices)
      : new PassedStreamReader(owner, judge);
  }
}

class TranslatedAttempt implements DoorAttempt {
  readonly body: string | undefined;
  readonly path = undefined;
  readonly passed = undefined;
  readonly #translator: Translator;
  readonly #call: DoorCall;
  /** How many responses the call asks for (`n`). */
  readonly #choices: number;
  /**
   * The chat completion, by which `inDoorsNames` finds the caller's names. Undefined if a counter thread has
   * made it, which has put the names into the fault.
   */
  readonly #chat: Members | undefined;

  constructor(
    translator: Translator,
    { requestId, stream, choices }: UpstreamRequest,
    target: UpstreamTarget,
    clock: Clock,
    body: Members,
    chat: Members | undefined,
  ) {
    const model = typeof body.model === 'string' ? body.model : '';
    const { thoughtsBack, memberNames } = target;
    this.#translator = translator;
    this.#call = { requestId, model, stream, body, nowMs: clock.wallMs(), thoughtsBack };
    this.#choices = choices;
    this.#chat = chat;
    this.body = chat && exactJsonText(inNamesOf(memberNames, { ...chat, model: target.model ?? model }));
  }

  openReader(owner: ReaderOwner): ResponseBodyReader {
    return translatingReader(owner, this.#translator, this.#call, this.#choices);
  }

  inDoorsNames(fault: HttpFault): HttpFault {
    const { field, message } = fault;
    if (field === undefined || this.#chat === undefined) return fault;
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

/** The parsed body, which is not large. The door has checked in the listener that it is a JSON object. */
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
