/**
 * Load for the crash tests: calls of one known cost on connections that stay, and an exact account of what
 * became of each.
 */
import type { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { picoUnitsOf } from '#src/core/money.js';
import type { Call } from './call-span.js';
import { TEST_MODEL, TEST_PRICE } from './gateway.js';
import { keepAliveAgent, request, type Answer } from './http.js';
import { steered } from './mock.js';
import { isDone, eventData } from './sse.js';

const PROMPT_TOKENS = 11;
const COMPLETION_TOKENS = 5;
const PRICE_TOKENS = 1_000_000n;

/** Prompt and completion of every call. */
export const CALL_TOKENS = PROMPT_TOKENS + COMPLETION_TOKENS;

/** Pico-units of every call. */
export const CALL_COST =
  (BigInt(PROMPT_TOKENS) * picoUnitsOf(TEST_PRICE.input)! +
    BigInt(COMPLETION_TOKENS) * picoUnitsOf(TEST_PRICE.output)!) /
  PRICE_TOKENS;

const promptOf = (upstreamMs: number): string =>
  steered(
    `prompt_tokens=${PROMPT_TOKENS}&completion_tokens=${COMPLETION_TOKENS}&first_byte_ms=${upstreamMs}`,
  );

/**
 * Statuses of refusals, but for 503: on a machine that is slow a lease may come too late, which is no limit.
 */
export const rejectionsOf = (callers: readonly Caller[]): number[] =>
  [...new Set(callers.flatMap(({ refused }) => [...refused.keys()]))].filter((status) => status !== 503);

/** The calls of all that were answered, each with its two moments. */
export const callsOf = (callers: readonly Caller[]): Call[] =>
  callers.flatMap(({ sentMs, answeredMs }) =>
    answeredMs.map((ms, n) => ({ sentMs: sentMs[n]!, answeredMs: ms })),
  );

/** What is called, and how its streams end. */
export interface CallForm {
  readonly path: string;
  readonly body: (stream: boolean) => object;
  readonly isWholeStream: (body: string) => boolean;
  readonly hasStreams: boolean;
}

/** Chat calls that cost CALL_COST. */
const chatForm = (prompt: string): CallForm => ({
  path: '/v1/chat/completions',
  body: (stream) => ({
    model: TEST_MODEL,
    stream,
    max_tokens: 20,
    messages: [{ role: 'user', content: prompt }],
  }),
  isWholeStream: (body) => eventData(body).some(isDone),
  hasStreams: true,
});

export interface CallerOptions {
  readonly port: number;
  readonly key: string;
  readonly connections: number;
  /**
   * Of a connection after a response that was none, so that refusals do not take the machine from what is
   * admitted. Default 0.
   */
  readonly refusedPauseMs?: number;
  /** What the upstream takes for each call; none by default. */
  readonly upstreamMs?: number | undefined;
  /** Chat calls by default. */
  readonly form?: CallForm;
}

/**
 * Connections that make one call after the other for one account, until they are told to stop or the gateway
 * is gone.
 */
export class Caller {
  /** When each response had been read to its end, and when its request was sent. */
  readonly answeredMs: number[] = [];
  readonly sentMs: number[] = [];
  readonly requestIds: string[] = [];
  /** By status, of responses that were none: refusals and failures. */
  readonly refused = new Map<number, number>();
  /** Calls that were sent and whose answer never came to its end. */
  broken = 0;
  inFlight = 0;
  readonly done: Promise<unknown>;
  readonly #options: CallerOptions;
  readonly #form: CallForm;
  readonly #agent: Agent;
  #stopped = false;

  constructor(options: CallerOptions) {
    this.#options = options;
    this.#form = options.form ?? chatForm(promptOf(options.upstreamMs ?? 0));
    this.#agent = keepAliveAgent(options.connections);
    this.done = Promise.all(Array.from({ length: options.connections }, (_, n) => this.#call(n)))
      // The others may still wait for answers of a process that is gone.
      .finally(() => this.#agent.destroy());
  }

  stop(): void {
    this.#stopped = true;
  }

  async #call(connection: number): Promise<void> {
    for (let n = connection; !this.#stopped; n++) {
      const stream = this.#form.hasStreams && n % 2 === 0;
      this.inFlight++;
      const sentMs = performance.now();
      try {
        const answer = await this.#request(stream);
        if (answer.status !== 200) await this.#refusedWith(answer.status);
        else if (stream && !this.#form.isWholeStream(answer.body)) this.broken++;
        else this.#answered(answer, sentMs);
      } catch {
        this.broken++;
        return;
      } finally {
        this.inFlight--;
      }
    }
  }

  async #refusedWith(status: number): Promise<void> {
    this.refused.set(status, (this.refused.get(status) ?? 0) + 1);
    const { refusedPauseMs = 0 } = this.#options;
    if (refusedPauseMs > 0) await sleep(refusedPauseMs);
  }

  #answered(answer: Answer, sentMs: number): void {
    this.answeredMs.push(performance.now());
    this.sentMs.push(sentMs);
    this.requestIds.push(String(answer.headers['x-request-id']));
  }

  #request(stream: boolean): Promise<Answer> {
    const { port, key } = this.#options;
    return request({
      port,
      path: this.#form.path,
      agent: this.#agent,
      headers: { authorization: `Bearer ${key}` },
      body: this.#form.body(stream),
    });
  }
}
