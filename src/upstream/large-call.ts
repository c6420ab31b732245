/**
 * The request of an attempt whose large body a counter thread translates before it is sent
 * (large-translation.ts). Until then attempt.ts has an HttpCall of which nothing was sent. Upstream worker.
 *
 * Must hold: the body is copied, because a further attempt may need it. After `abort` nothing is sent, and
 * the handler is not called (test/unit/upstream/large-call.test.ts).
 */
import type { UpstreamRequest } from '../channel/messages.js';
import { AskRejected, type PendingQuestion } from '../core/ask-port.js';
import { CHAT_DOOR } from '../core/door-names.js';
import { disposable } from '../core/bytes.js';
import type { Clock } from '../core/clock.js';
import type { ErrorRecord } from '../core/errors.js';
import type { Members } from '../core/json.js';
import type { AccountIndex } from '../core/units.js';
import { dialectAt } from '../doors/dialects.js';
import type { HttpCall, HttpHandler } from '../http1/http-client.js';
import type { ProviderClient } from '../providers/provider-client.js';
import { FIELD_UNSUPPORTED, REQUEST_UNWRITTEN } from '../providers/provider.js';
import { PROVIDERS } from '../providers/providers.js';
import { NOT_TRANSLATED } from './error-mapping.js';
import type { LargeBody, LargeTranslated } from './large-translation.js';
import { mayHave } from './upstream-body.js';
import type { AttemptClient, UpstreamTarget } from './target.js';

/** Asks the counter pool, which gets the body's memory (transfer). The reply may reject with AskRejected. */
export type TranslateLarge = (large: LargeBody, account: AccountIndex) => PendingQuestion<LargeTranslated>;

/** What the large calls of a worker need besides the target's client. */
export interface LargeDeps {
  readonly translate: TranslateLarge;
  /** The client for upstreams that do not speak OpenAI's protocol. */
  readonly providers: ProviderClient;
  readonly clock: Clock;
}

/** A request that `isLargeTranslation` is true of. */
type LargeRequest = UpstreamRequest & { readonly largeBody: Uint8Array };

type TranslatedRequest = Extract<LargeTranslated, { isWritten: true }>;

/** Nobody reads this reason for `withdraw`: the client left, or a failure ended the attempt. */
const ABORTED: ErrorRecord = { code: 'internal_error', message: 'the call was aborted' };

/** Whether a body of BODY_AS_BYTES_MIN or more goes to an upstream that does not speak its protocol. */
export function isLargeTranslation(
  request: UpstreamRequest,
  target: UpstreamTarget,
): request is LargeRequest {
  const { largeBody, door } = request;
  if (largeBody === undefined) return false;
  const { memberNames } = target;
  if (door === CHAT_DOOR)
    return isTranslated(target) || (memberNames !== undefined && mayHave(largeBody, memberNames));
  // Every door but chat has a dialect (doors/dialects.ts).
  const { name, translator, isCount } = dialectAt(door)!;
  return target.doors[name] === undefined && translator !== undefined && isCount !== true;
}

/** Whether chat completions are translated for the upstream. */
export function isTranslated({ provider }: UpstreamTarget): boolean {
  return provider !== undefined && PROVIDERS[provider.name] !== undefined;
}

/**
 * `client`: of the target. `onWritten` is called right before the request is sent, with the members of the
 * caller's body but the conversation.
 */
export function startLargeCall(
  deps: LargeDeps,
  client: AttemptClient,
  target: UpstreamTarget,
  request: LargeRequest,
  handler: HttpHandler,
  moreHeaders: readonly string[] | undefined,
  onWritten: (callersMembers: Members) => void,
): HttpCall {
  const { requestId, door, stream, largeBody, account, modelStart, modelEnd } = request;
  const large: LargeBody = {
    ...{ door, stream, requestId, modelStart, modelEnd },
    // A copy, because `translate` transfers the memory, and another attempt may need the body.
    body: new Uint8Array(largeBody),
    model: target.model,
    provider: target.provider,
    memberNames: target.memberNames,
    thoughtsBack: target.thoughtsBack === true,
    nowMs: deps.clock.wallMs(),
  };
  const send = ({ body, path, bodyHash, callersMembers, chat }: TranslatedRequest): HttpCall => {
    onWritten(callersMembers);
    disposable(body);
    if (path === undefined) return client.start(target, body, requestId, handler, moreHeaders);
    const translated = { path, body, bodyHash };
    return deps.providers.startWritten(target, translated, { chat, stream }, requestId, handler, moreHeaders);
  };
  return new LargeCall(deps.translate(large, account), handler, send);
}

/** asked → sent (`#sentCall` is set) or over (`#isOver`); `abort` may come at any point. */
class LargeCall implements HttpCall {
  readonly #question: PendingQuestion<LargeTranslated>;
  readonly #handler: HttpHandler;
  /** The HttpCall of the translated request; undefined until the request is sent. */
  #sentCall: HttpCall | undefined;
  #isOver = false;

  constructor(
    question: PendingQuestion<LargeTranslated>,
    handler: HttpHandler,
    send: (translated: TranslatedRequest) => HttpCall,
  ) {
    this.#question = question;
    this.#handler = handler;
    question.reply
      .then((translated) => this.#onReply(translated, send))
      .catch((error: unknown) =>
        this.#fail(error instanceof AskRejected ? NOT_TRANSLATED : REQUEST_UNWRITTEN, String(error)),
      );
  }

  get sent(): boolean {
    return this.#sentCall?.sent ?? false;
  }

  get isHeldUp(): boolean {
    return this.#sentCall?.isHeldUp ?? false;
  }

  get isRefused(): boolean {
    return this.#sentCall?.isRefused === true;
  }

  get usageSoFar(): unknown {
    return this.#sentCall?.usageSoFar;
  }

  pause(): void {
    this.#sentCall?.pause();
  }

  resume(): void {
    this.#sentCall?.resume();
  }

  drain(): void {
    this.#sentCall?.drain();
  }

  abort(): void {
    this.#isOver = true;
    if (this.#sentCall === undefined) this.#question.withdraw(ABORTED);
    else this.#sentCall.abort();
  }

  #onReply(translated: LargeTranslated, send: (translated: TranslatedRequest) => HttpCall): void {
    if (this.#isOver) return;
    if (translated.isWritten) this.#sentCall = send(translated);
    else this.#fail(translated.isField ? FIELD_UNSUPPORTED : REQUEST_UNWRITTEN, translated.message);
  }

  #fail(code: string, message: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#handler.onError({ code, message, repeatable: false });
  }
}
