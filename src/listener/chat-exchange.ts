/**
 * One chat-completion request on its socket, from its body to the last byte of its answer. Listener thread.
 *
 *     reading → parsing (large bodies only) → waiting (for the worker's first frame) → answering → held → done
 *
 * With `durability: commit` the last bytes of an answer are held until its charge is on disk, and the books alone know of
 * the call from then on: its slot belongs to another.
 *
 * Back-pressure: µWS's `write` says false when the client's socket takes no more. From then on frames queue here, and no
 * credit goes back to the worker; both sides together hold one window. When the socket takes bytes again, the queue is
 * written and the credits return.
 */
import type { HttpResponse } from 'uWebSockets.js';
import { invariant, type ErrorRecord } from '../core/errors.js';
import { SSE_KEEP_ALIVE, errorEvent } from '../protocol/sse.js';
import type { ChatCall } from '../protocol/chat-call.js';
import { readChatBytes } from '../protocol/request-bytes.js';
import type { Usage } from '../protocol/usage.js';
import { admit } from '../pipeline/admit.js';
import type { CallContext } from '../pipeline/context.js';
import type { HeldEnd } from '../pipeline/held-ends.js';
import { release, reverse, settle, type Settled } from '../pipeline/settle.js';
import { AskRefused } from '../pool/ask-port.js';
import type { CallReceiver } from '../pool/listener-link.js';
import type { Outcome } from '../telemetry/metrics.js';
import { JSON_TYPE, writeError, writeHead, writeStreamHead } from './answer.js';
import type { ListenerServer } from './server.js';

type Phase = 'reading' | 'parsing' | 'waiting' | 'answering' | 'held' | 'done';

const NO_WORKER: ErrorRecord = {
  code: 'overloaded',
  message: 'The gateway is replacing its workers. Retry after 1 second.',
  retryAfterSeconds: 1,
};

const NOT_IN_BOOKS: ErrorRecord = {
  code: 'internal_error',
  message:
    'The gateway could not write the charge of this call to its books and has withheld the answer. The call was not billed; try it again.',
};

export class ChatExchange implements CallReceiver, HeldEnd {
  readonly #server: ListenerServer;
  readonly #res: HttpResponse;
  readonly #context: CallContext;
  #phase: Phase = 'reading';
  #clientGone = false;
  /** Status and headers are out. */
  #begun = false;
  #held: { readonly settled: Settled; readonly bytes: Uint8Array } | undefined;
  /** Frames that the client's socket had no room for, oldest first. */
  #queue: Uint8Array[] = [];
  #blocked = false;
  /** Bytes that µWS took although the socket was full: their credits return when it drains. */
  #owedBytes = 0;
  #lastWriteMs = 0;

  constructor(server: ListenerServer, res: HttpResponse, context: CallContext) {
    this.#server = server;
    this.#res = res;
    this.#context = context;
    res.onAborted(() => this.#onClientGone());
    server.opened();
  }

  /** The body is whole; `bytes` are valid during the call only. */
  onBody(bytes: Uint8Array): void {
    if (bytes.length > this.#server.limits.parseInlineBytesMax) {
      void this.#parseElsewhere(bytes);
      return;
    }
    const read = readChatBytes(bytes);
    if (read.ok) this.#start(read.call);
    else this.refuse(read.error);
  }

  /** `more` of the body is still to come and will not be read. */
  onTooLarge(more: boolean): void {
    const { bodyBytesMax } = this.#server.limits;
    this.refuse(
      {
        code: 'request_too_large',
        message: `The body is longer than the ${bodyBytesMax} bytes that are accepted. Shorten the messages.`,
      },
      more || this.#server.draining,
    );
  }

  /** Answers with an error before anything was admitted. */
  refuse(error: ErrorRecord, close = this.#server.draining): void {
    if (!this.#clientGone) this.#res.cork(() => writeError(this.#res, error, this.#context, { close }));
    this.#finish(this.#clientGone ? 'client_gone' : error.code);
  }

  async #parseElsewhere(bytes: Uint8Array): Promise<void> {
    this.#phase = 'parsing';
    const copy = new Uint8Array(bytes);
    try {
      const read = await this.#server.parser.ask(copy, [copy.buffer]);
      if (this.#clientGone) this.#finish('client_gone');
      else if (read.ok) this.#start(read.call);
      else this.refuse(read.error);
    } catch (error) {
      if (!(error instanceof AskRefused)) throw error;
      this.refuse(error.refusal);
    }
  }

  #start(call: ChatCall): void {
    const { parts } = this.#server;
    const refusal = admit(this.#context, call, parts);
    if (refusal !== undefined) {
      this.refuse(refusal);
      return;
    }
    const { admission } = this.#context;
    invariant(admission !== undefined, 'admit sets the admission or refuses');
    this.#phase = 'waiting';
    const dispatched = parts.link.dispatch(
      admission.slot,
      {
        requestId: this.#context.requestId,
        modelIndex: admission.modelIndex,
        stream: admission.call.stream,
        includeUsage: admission.call.includeUsage,
        modelStart: admission.call.modelStart,
        modelEnd: admission.call.modelEnd,
        body: admission.call.body,
      },
      this,
    );
    if (dispatched) {
      parts.metrics.add('calls_in_flight', 1);
      return;
    }
    release(this.#context, NO_WORKER, parts);
    parts.link.release(admission.slot);
    this.refuse(NO_WORKER);
  }

  onData(bytes: Uint8Array): void {
    if (this.#clientGone) return;
    if (this.#blocked) this.#queue.push(bytes);
    else this.#write(bytes);
  }

  onEnd(bytes: Uint8Array, usage: Usage): void {
    const { parts } = this.#server;
    const settled = settle(this.#context, usage, parts);
    parts.metrics.add('calls_in_flight', -1);
    if (parts.durability === 'commit' && !this.#clientGone) {
      this.#phase = 'held';
      this.#held = { settled, bytes };
      parts.held.hold(settled.position, this);
    } else {
      this.#end(bytes);
    }
  }

  onCommitted(): void {
    invariant(this.#held !== undefined, 'what is let go was held');
    this.#end(this.#held.bytes);
  }

  /** Who has left has had what was relayed and pays for it: that charge waits in memory like any other. */
  onUncommitted(): void {
    invariant(this.#held !== undefined, 'what is given up was held');
    if (!this.#clientGone) {
      reverse(this.#context, this.#held.settled, this.#server.parts);
      this.#writeFailure(NOT_IN_BOOKS);
    }
    this.#finish(this.#clientGone ? 'client_gone' : NOT_IN_BOOKS.code);
  }

  #end(bytes: Uint8Array): void {
    if (!this.#clientGone) {
      this.#res.cork(() => {
        const begun = this.#begun;
        this.#begin();
        this.#writeQueue();
        this.#res.end(bytes, !begun && this.#server.draining);
      });
    }
    this.#finish(this.#clientGone ? 'client_gone' : 'ok');
  }

  onFail(error: ErrorRecord): void {
    release(this.#context, error, this.#server.parts);
    this.#server.parts.metrics.add('calls_in_flight', -1);
    const outcome = this.#clientGone ? 'client_gone' : error.code;
    if (!this.#clientGone) this.#writeFailure(error);
    this.#finish(outcome);
  }

  #writeFailure(error: ErrorRecord): void {
    if (!this.#begun) {
      this.#res.cork(() => writeError(this.#res, error, this.#context, { close: this.#server.draining }));
    } else if (this.#isStream) {
      this.#res.cork(() => {
        this.#writeQueue();
        // Not with µWS's own "close": once the head is out it writes the header's text into the body.
        this.#res.end(errorEvent(error));
      });
    } else {
      // Half of a whole answer is out and its length was not promised: only a cut tells that it is not whole.
      this.#res.close();
    }
  }

  /** Called about once a second while a stream is open: a sign of life, or the end of a reader that takes nothing. */
  onSweep(nowMs: number, keepAliveMs: number): void {
    if (this.#phase !== 'answering' || this.#clientGone) return;
    const silentMs = nowMs - this.#lastWriteMs;
    if (this.#blocked) {
      if (silentMs >= this.#server.limits.clientIdleTimeoutMs) this.#res.close();
    } else if (this.#isStream && silentMs >= keepAliveMs) {
      this.#lastWriteMs = nowMs;
      this.#res.cork(() => this.#res.write(SSE_KEEP_ALIVE));
    }
  }

  get #isStream(): boolean {
    return this.#context.admission?.call.stream === true;
  }

  /** Status and headers, once. Inside a cork. */
  #begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    if (this.#isStream) writeStreamHead(this.#res, this.#context);
    else writeHead(this.#res, 200, this.#context, JSON_TYPE);
  }

  #write(bytes: Uint8Array): void {
    this.#res.cork(() => {
      if (!this.#begun) {
        this.#begin();
        this.#phase = 'answering';
        this.#server.streaming.add(this);
        this.#res.onWritable(() => this.#onWritable());
      }
      this.#blocked = !this.#res.write(bytes);
    });
    this.#lastWriteMs = this.#server.parts.clock.monotonicMs();
    if (this.#blocked) this.#owedBytes += bytes.length;
    else this.#refund(bytes.length);
  }

  /** The socket takes bytes again. */
  #onWritable(): boolean {
    this.#blocked = false;
    const owedBytes = this.#owedBytes;
    this.#owedBytes = 0;
    this.#refund(owedBytes);
    // µWS 20.41 sends what it buffered only along with a further write, and a stream may have none for long: a comment
    // it is. Frames of a stream hold whole events, so it never falls into one. A whole answer has more on the way.
    if (this.#queue.length === 0 && this.#isStream) {
      this.#res.cork(() => (this.#blocked = !this.#res.write(SSE_KEEP_ALIVE)));
    }
    this.#unqueue();
    return true;
  }

  #unqueue(): void {
    while (!this.#blocked && this.#queue.length > 0) this.#write(this.#queue.shift()!);
  }

  /** Inside a cork, before the end: µWS keeps what the socket does not take, one window at most. */
  #writeQueue(): void {
    for (const bytes of this.#queue) this.#res.write(bytes);
    this.#queue = [];
  }

  #refund(bytes: number): void {
    // The worker has sent its last frame, and the slot with its credits is another call's.
    if (this.#phase === 'held') return;
    const { admission } = this.#context;
    invariant(admission !== undefined, 'only an admitted call has an answer');
    this.#server.parts.link.refund(admission.slot, bytes);
  }

  #onClientGone(): void {
    this.#clientGone = true;
    this.#queue = [];
    const { admission } = this.#context;
    if (this.#phase === 'reading') this.#finish('client_gone');
    else if (admission !== undefined && this.#phase !== 'held' && this.#phase !== 'done')
      this.#server.parts.link.cancel(admission.slot);
  }

  #finish(outcome: Outcome): void {
    invariant(this.#phase !== 'done', 'an exchange ends once');
    this.#phase = 'done';
    this.#server.streaming.delete(this);
    this.#server.closed(outcome);
  }
}
