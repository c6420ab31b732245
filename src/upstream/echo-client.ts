/**
 * The built-in echo model behind UpstreamClient, so that a gateway without any provider answers. Upstream worker, in its event
 * loop: bounded work a turn, and none while paused.
 */
import type { Clock } from '../core/clock.js';
import { Roster } from '../core/roster.js';
import type { UpstreamCall, UpstreamClient, UpstreamHandler } from './client.js';
import { EchoAnswer, echoRequestOf } from './echo-answer.js';
import type { UpstreamTarget } from './target.js';

/** Events made in one turn of the loop: about 8 KB, some 50 µs, then the other calls have their turn. */
const BATCH_EVENTS_MAX = 32;

export class EchoClient implements UpstreamClient {
  readonly #clock: Clock;
  readonly #calls = new Roster<EchoCall>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  start(
    _target: UpstreamTarget,
    body: string | Uint8Array,
    requestId: string,
    handler: UpstreamHandler,
  ): UpstreamCall {
    const request = echoRequestOf(typeof body === 'string' ? body : Buffer.from(body).toString());
    const createdSeconds = Math.floor(this.#clock.wallMs() / 1_000);
    const answer = request && new EchoAnswer(request, `chatcmpl-${requestId}`, createdSeconds);
    return new EchoCall(answer, request?.stream === true, handler, this.#calls);
  }

  close(): Promise<void> {
    for (const call of this.#calls) call.close();
    return Promise.resolve();
  }
}

class EchoCall implements UpstreamCall {
  readonly sent = true;
  /** It fails of nothing that a caller does. */
  readonly isHeldUp = false;
  readonly #answer: EchoAnswer | undefined;
  readonly #stream: boolean;
  readonly #handler: UpstreamHandler;
  readonly #calls: Roster<EchoCall>;
  readonly #place: number;
  #started = false;
  #wholeGiven = false;
  #paused = false;
  #scheduled = false;
  #over = false;

  constructor(
    answer: EchoAnswer | undefined,
    stream: boolean,
    handler: UpstreamHandler,
    calls: Roster<EchoCall>,
  ) {
    this.#answer = answer;
    this.#stream = stream;
    this.#handler = handler;
    this.#calls = calls;
    this.#place = calls.add(this);
    this.#schedule();
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#schedule();
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    this.#calls.remove(this.#place);
  }

  close(): void {
    this.abort();
    this.#handler.onError({ code: 'ECHO_CLOSED', message: 'the echo model was closed', repeatable: false });
  }

  #schedule(): void {
    if (this.#scheduled || this.#over) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      if (this.#mayGoOn()) this.#turn();
    });
  }

  #turn(): void {
    if (!this.#started) this.#start();
    // Each callback may pause or abort.
    if (!this.#mayGoOn()) return;
    const bytes = this.#next();
    if (bytes === undefined) {
      this.abort();
      this.#handler.onEnd();
      return;
    }
    this.#handler.onData(bytes);
    if (this.#mayGoOn()) this.#schedule();
  }

  #start(): void {
    this.#started = true;
    const type = this.#stream ? 'text/event-stream' : 'application/json';
    const status = this.#answer === undefined ? 400 : 200;
    this.#handler.onStart(status, (name) => (name === 'content-type' ? type : undefined));
  }

  /** The bytes of one turn; undefined at the end. */
  #next(): Uint8Array | undefined {
    if (!this.#stream) return this.#wholeOnce();
    const events: string[] = [];
    while (events.length < BATCH_EVENTS_MAX) {
      const next = this.#answer?.nextEvents();
      if (next === undefined) break;
      events.push(next);
    }
    return events.length === 0 ? undefined : Buffer.from(events.join(''));
  }

  #wholeOnce(): Uint8Array | undefined {
    if (this.#answer === undefined || this.#wholeGiven) return undefined;
    this.#wholeGiven = true;
    return Buffer.from(this.#answer.whole());
  }

  #mayGoOn(): boolean {
    return !this.#paused && !this.#over;
  }
}
