/**
 * The built-in echo model as an HTTP client, so that a gateway without a provider can respond. The model
 * responds with the text of the last user message. `prompt_tokens` counts the texts of all messages,
 * `completion_tokens` the response. session-shared.ts gives the client to sessions in place of Http1Client,
 * for upstreams with the origin ECHO_ORIGIN. Upstream worker.
 *
 * Must hold: the model runs in the event loop of the worker, so its work in a turn is bounded
 * (BATCH_EVENTS_MAX), and a paused call does no work (test/unit/upstream/echo-client.test.ts).
 */
import type { Clock } from '../core/clock.js';
import { isRecord, parsedJson } from '../core/json.js';
import type { HttpCall, HttpHandler } from '../http1/http-client.js';
import { SSE_DONE, sseEvent } from '../protocol/sse.js';
import type { AttemptClient, UpstreamTarget } from './target.js';

/** About a word. Bounds keep the tokens of any text short: 16 blanks, then 32 other characters. */
const TOKEN = /\s{0,16}\S{1,32}|\s{1,16}/gu;

/** How many tokens a chunk of a stream has: a few words, as from real models. */
const CHUNK_TOKENS = 4;

interface EchoRequest {
  readonly model: string;
  readonly stream: boolean;
  /** Of the last user message. */
  readonly text: string;
  readonly promptTokens: number;
  /** Infinity if the request sets no bound. */
  readonly outputTokensMax: number;
}

/** What the echo model reads of a body; undefined if the body is no chat completion. */
function echoRequestOf(body: string): EchoRequest | undefined {
  const request = parsedJson(body);
  if (!isRecord(request) || typeof request.model !== 'string' || !Array.isArray(request.messages))
    return undefined;
  let text = '';
  let promptTokens = 0;
  for (const message of request.messages as unknown[]) {
    if (!isRecord(message)) continue;
    const messageText = textOf(message.content);
    promptTokens += countEchoTokens(messageText);
    if (message.role === 'user') text = messageText;
  }
  const bound = request.max_completion_tokens ?? request.max_tokens;
  const outputTokensMax = typeof bound === 'number' ? bound : Infinity;
  return { model: request.model, stream: request.stream === true, text, promptTokens, outputTokensMax };
}

function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return (content as unknown[])
    .map((part) => (isRecord(part) && typeof part.text === 'string' ? part.text : ''))
    .join('');
}

function countEchoTokens(text: string): number {
  let count = 0;
  const tokens = text.matchAll(TOKEN);
  while (tokens.next().done !== true) count++;
  return count;
}

/** One response, made event by event. `id` and `createdSeconds` (since 1970) are members of the response. */
class EchoResponse {
  readonly #request: EchoRequest;
  readonly #id: string;
  readonly #createdSeconds: number;
  readonly #tokens: Iterator<RegExpExecArray>;
  #completionTokens = 0;

  constructor(request: EchoRequest, id: string, createdSeconds: number) {
    this.#request = request;
    this.#id = id;
    this.#createdSeconds = createdSeconds;
    this.#tokens = request.text.matchAll(TOKEN);
  }

  get isStream(): boolean {
    return this.#request.stream;
  }

  /** The events of a stream, the last one with usage and `[DONE]`; of any other response its text. */
  *events(): Generator<string, undefined> {
    if (!this.isStream) {
      yield this.#wholeResponse();
      return;
    }
    yield this.#chunk({ role: 'assistant', content: '' }, null);
    for (;;) {
      const content = this.#nextText(CHUNK_TOKENS);
      if (content === '') break;
      yield this.#chunk({ content }, null);
    }
    const head = this.#head('chat.completion.chunk');
    const usage = JSON.stringify({ ...head, choices: [], usage: this.#usage() });
    yield this.#chunk({}, this.#takeFinishReason()) + sseEvent(usage) + SSE_DONE;
  }

  #wholeResponse(): string {
    const message = { role: 'assistant', content: this.#nextText(Infinity) };
    const choice = { index: 0, message, logprobs: null, finish_reason: this.#takeFinishReason() };
    return JSON.stringify({ ...this.#head('chat.completion'), choices: [choice], usage: this.#usage() });
  }

  /** The next tokens of the text, at most `count`. */
  #nextText(count: number): string {
    let content = '';
    const { outputTokensMax } = this.#request;
    for (let index = 0; index < count && this.#completionTokens < outputTokensMax; index++) {
      const token = this.#tokens.next();
      if (token.done === true) break;
      this.#completionTokens++;
      content += token.value[0];
    }
    return content;
  }

  /** Call once, after the last text: to learn whether text is left, the method takes a token. */
  #takeFinishReason(): 'stop' | 'length' {
    const isAtBound = this.#completionTokens >= this.#request.outputTokensMax;
    return isAtBound && this.#tokens.next().done !== true ? 'length' : 'stop';
  }

  #chunk(delta: object, finishReason: string | null): string {
    const choice = { index: 0, delta, logprobs: null, finish_reason: finishReason };
    return sseEvent(
      JSON.stringify({ ...this.#head('chat.completion.chunk'), choices: [choice], usage: null }),
    );
  }

  #head(object: string): object {
    return { id: this.#id, object, created: this.#createdSeconds, model: this.#request.model };
  }

  #usage(): object {
    const { promptTokens } = this.#request;
    const completionTokens = this.#completionTokens;
    return {
      prompt_tokens: promptTokens,
      completion_tokens: completionTokens,
      total_tokens: promptTokens + completionTokens,
    };
  }
}

/** How many events a call sends in one event-loop turn (about 8 KB, 50 µs), so that other calls go on. */
const BATCH_EVENTS_MAX = 32;

export class EchoClient implements AttemptClient {
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  start(
    _target: UpstreamTarget,
    body: string | Uint8Array,
    requestId: string,
    handler: HttpHandler,
  ): HttpCall {
    const request = echoRequestOf(typeof body === 'string' ? body : Buffer.from(body).toString());
    const createdSeconds = Math.floor(this.#clock.wallMs() / 1_000);
    return new EchoCall(
      request && new EchoResponse(request, `chatcmpl-${requestId}`, createdSeconds),
      handler,
    );
  }
}

/** Calls its handler from `setImmediate` alone, so never before `EchoClient.start` has returned. */
class EchoCall implements HttpCall {
  /** As if a request had been sent, so that a call whose client leaves is charged as any other. */
  readonly sent = true;
  /** False: the echo model does not fail if its client reads slowly. */
  readonly isHeldUp = false;
  readonly #response: EchoResponse | undefined;
  readonly #events: Iterator<string> | undefined;
  readonly #handler: HttpHandler;
  #hasStarted = false;
  #isPaused = false;
  #isScheduled = false;
  #isOver = false;

  /** Without a `response` the call gets a 400: its request is no chat completion. */
  constructor(response: EchoResponse | undefined, handler: HttpHandler) {
    this.#response = response;
    this.#events = response?.events();
    this.#handler = handler;
    this.#schedule();
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.#schedule();
  }

  drain(): void {
    this.resume();
  }

  abort(): void {
    this.#isOver = true;
  }

  #schedule(): void {
    if (this.#isScheduled || this.#isOver) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      if (this.#maySend()) this.#sendBatch();
    });
  }

  #sendBatch(): void {
    if (!this.#hasStarted) this.#sendHead();
    // Each method of the handler may pause or abort the call.
    if (!this.#maySend()) return;
    const bytes = this.#nextBatch();
    if (bytes === undefined) {
      this.#isOver = true;
      this.#handler.onEnd();
      return;
    }
    this.#handler.onData(bytes);
    if (this.#maySend()) this.#schedule();
  }

  #sendHead(): void {
    this.#hasStarted = true;
    const type = this.#response?.isStream === true ? 'text/event-stream' : 'application/json';
    const status = this.#response === undefined ? 400 : 200;
    this.#handler.onStart(status, (name) => (name === 'content-type' ? type : undefined));
  }

  /** The bytes of one event-loop turn; undefined at the end of the response. */
  #nextBatch(): Uint8Array | undefined {
    const events: string[] = [];
    while (events.length < BATCH_EVENTS_MAX) {
      const event = this.#events?.next();
      if (event?.done !== false) break;
      events.push(event.value);
    }
    return events.length === 0 ? undefined : Buffer.from(events.join(''));
  }

  #maySend(): boolean {
    return !this.#isPaused && !this.#isOver;
  }
}
