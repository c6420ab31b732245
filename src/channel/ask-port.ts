/**
 * Questions and answers over a port: a listener asks the main thread to have a large body parsed, a worker asks it to
 * have tokens counted. A question may be taken back, and is when its time is over. Both sides; any thread.
 */
import type { MessagePort, Transferable } from 'node:worker_threads';
import type { ErrorRecord } from '../core/errors.js';
import { SlotList } from '../core/slot-list.js';

export interface Question {
  readonly id: number;
  readonly ask: unknown;
}

/** Nobody waits for the response any more: it may come at once, and may be a refusal. */
export interface Withdrawal {
  readonly id: number;
  readonly withdrawn: true;
}

/** One for each question, also for one that was taken back. Exactly one of `answer` and `refusal` is meant, by `ok`. */
export type AskReply =
  | { readonly id: number; readonly ok: true; readonly answer: unknown }
  | { readonly id: number; readonly ok: false; readonly refusal: ErrorRecord };

/** A port's far end refused the question (the pool is full, or the task failed), or the question was taken back. */
export class AskRefused extends Error {
  readonly refusal: ErrorRecord;

  constructor(refusal: ErrorRecord) {
    super(refusal.message);
    this.name = 'AskRefused';
    this.refusal = refusal;
  }
}

interface Waiting {
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: AskRefused) => void;
  readonly timer: NodeJS.Timeout | undefined;
}

/** A question with a bound on its wait. */
export interface Asked<Reply> {
  /** Rejects with AskRefused, of `late` if the time was over, or of what `withdraw` was given. */
  readonly reply: Promise<Reply>;
  /** Takes the question back, if it still waits. */
  withdraw(reason: ErrorRecord): void;
}

/** Bounded by the calls in flight: each asks one question at a time, and the far end refuses what it can't queue. */
export class AskPort<Ask, Reply> {
  readonly #port: MessagePort;
  /** A question's identifier is its place, which is its own until the response has come, because each has one. */
  readonly #waiting = new SlotList<Waiting>();

  constructor(port: MessagePort) {
    this.#port = port;
    port.on('message', (reply: AskReply) => {
      const waiting = this.#waiting.at(reply.id);
      if (waiting === undefined) return;
      this.#waiting.remove(reply.id);
      clearTimeout(waiting.timer);
      if (reply.ok) waiting.resolve(reply.answer);
      else waiting.reject(new AskRefused(reply.refusal));
    });
  }

  /** The reply, or an AskRefused. Objects of `transfer` change their owner. */
  ask(ask: Ask, transfer: readonly Transferable[] = []): Promise<Reply> {
    return new Promise<Reply>((resolve, reject) => {
      this.#send(ask, transfer, resolve as (reply: unknown) => void, reject, undefined);
    });
  }

  /** The same for so long; then the question is taken back. */
  askFor(
    waitMsMax: number,
    late: ErrorRecord,
    ask: Ask,
    transfer: readonly Transferable[] = [],
  ): Asked<Reply> {
    let withdraw: Asked<Reply>['withdraw'] = () => undefined;
    const reply = new Promise<Reply>((resolve, reject) => {
      const timer = setTimeout(() => withdraw(late), waitMsMax);
      // A thread that ends does not wait for it.
      timer.unref();
      const id = this.#send(ask, transfer, resolve as (answer: unknown) => void, reject, timer);
      const waiting = this.#waiting.at(id);
      withdraw = (reason) => {
        if (this.#waiting.at(id) !== waiting) return;
        clearTimeout(timer);
        // The response that follows finds a promise that is settled.
        waiting!.reject(new AskRefused(reason));
        this.#port.postMessage({ id, withdrawn: true } satisfies Withdrawal);
      };
    });
    return { reply, withdraw };
  }

  close(): void {
    this.#port.close();
  }

  #send(
    ask: Ask,
    transfer: readonly Transferable[],
    resolve: Waiting['resolve'],
    reject: Waiting['reject'],
    timer: NodeJS.Timeout | undefined,
  ): number {
    const id = this.#waiting.add({ resolve, reject, timer });
    this.#port.postMessage({ id, ask } satisfies Question, [...transfer]);
    return id;
  }
}
