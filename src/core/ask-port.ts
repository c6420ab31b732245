/**
 * Questions and replies between threads and processes. Any thread, and the supervisor process.
 *
 * PendingReplies holds who waits for which reply, whatever carries the messages. AskPort asks over a
 * MessagePort: a listener has a large body parsed, a worker has tokens counted. It takes a question back when
 * its time is over or the caller withdraws it.
 */
import type { MessagePort, Transferable } from 'node:worker_threads';
import { invariant, type ErrorRecord } from './errors.js';
import { SlotList } from './slot-list.js';

/** How long to wait for a reply, and what to take for it then. */
export interface WaitBound<Reply> {
  readonly waitMsMax: number;
  readonly onTimeout: () => Reply;
}

interface Waiting<Reply> {
  id: number;
  readonly resolve: (reply: Reply) => void;
  readonly timer: NodeJS.Timeout | undefined;
}

/**
 * An id is a slot of the list of those who wait, and a count, so that a late reply never meets another
 * question.
 */
const SLOTS_MAX = 2 ** 20;

export class PendingReplies<Reply> {
  readonly #bound: WaitBound<Reply> | undefined;
  readonly #waiting = new SlotList<Waiting<Reply>>();
  #count = 0;

  /** `bound` holds for each question that brings none of its own. */
  constructor(bound?: WaitBound<Reply>) {
    this.#bound = bound;
  }

  /** How many questions wait. */
  get size(): number {
    return this.#waiting.size;
  }

  /** `send` gets the id that the reply will name. Never rejects. */
  ask(send: (id: number) => void, bound = this.#bound): Promise<Reply> {
    return new Promise((resolve) => {
      const timer = bound && setTimeout(() => this.reply(waiting.id, bound.onTimeout()), bound.waitMsMax);
      // A thread or process that ends does not wait for it.
      timer?.unref();
      const waiting: Waiting<Reply> = { id: 0, resolve, timer };
      const slot = this.#waiting.add(waiting);
      invariant(slot < SLOTS_MAX, 'an id has room for everybody who waits');
      waiting.id = (this.#count += 1) * SLOTS_MAX + slot;
      send(waiting.id);
    });
  }

  /** Whether the question still waits. */
  waits(id: number): boolean {
    return this.#waiting.at(id % SLOTS_MAX)?.id === id;
  }

  /** A reply that comes after its time is dropped. */
  reply(id: number, reply: Reply): void {
    const slot = id % SLOTS_MAX;
    const waiting = this.#waiting.at(slot);
    if (waiting?.id !== id) return;
    this.#waiting.remove(slot);
    clearTimeout(waiting.timer);
    waiting.resolve(reply);
  }

  /** The far end is gone: everybody who waits gets this reply. */
  replyToAll(reply: Reply): void {
    for (const { id } of [...this.#waiting]) this.reply(id, reply);
  }
}

export interface Question<Ask = unknown> {
  readonly id: number;
  readonly ask: Ask;
}

/** Nobody waits for the reply any more: it may come at once, and may be a refusal. */
export interface Withdrawal {
  readonly id: number;
  readonly withdrawn: true;
}

/** One for each question, also for one that was withdrawn. */
export type AskReply<Reply = unknown> =
  | { readonly id: number; readonly ok: true; readonly answer: Reply }
  | { readonly id: number; readonly ok: false; readonly refusal: ErrorRecord };

/** The far end refused the question (the pool is full, or the task failed), or the question was withdrawn. */
export class AskRefused extends Error {
  readonly refusal: ErrorRecord;

  constructor(refusal: ErrorRecord) {
    super(refusal.message);
    this.name = 'AskRefused';
    this.refusal = refusal;
  }
}

/** A question with a bound on its wait. */
export interface Asked<Reply> {
  /** Rejects with AskRefused, of `late` if the time was over, or of what `withdraw` was given. */
  readonly reply: Promise<Reply>;
  /** Takes the question back, if it still waits. */
  withdraw(reason: ErrorRecord): void;
}

/**
 * One end of a port that asks. Bounded by the calls in flight: each asks one question at a time, and the far
 * end refuses what it can't queue. With `inTurns` what is asked and told in one event-loop turn is sent as
 * one message, an array; replies may come as arrays in any case.
 */
export class AskPort<Ask, Reply, Note = never> {
  readonly #port: MessagePort;
  readonly #inTurns: boolean;
  readonly #pending = new PendingReplies<AskReply<Reply>>();
  #turn: (Question<Ask> | Withdrawal | Note)[] = [];

  constructor(port: MessagePort, { inTurns = false } = {}) {
    this.#port = port;
    this.#inTurns = inTurns;
    port.on('message', (message: AskReply<Reply> | readonly AskReply<Reply>[]) => {
      if (!('length' in message)) this.#pending.reply(message.id, message);
      else for (const reply of message) this.#pending.reply(reply.id, reply);
    });
  }

  /** The reply, or an AskRefused. Objects of `transfer` change their owner. */
  ask(ask: Ask, transfer: readonly Transferable[] = []): Promise<Reply> {
    return answerOf(this.#pending.ask((id) => this.#send({ id, ask }, transfer)));
  }

  /** As `ask`, but the question is withdrawn after `waitMsMax`. */
  askFor(
    waitMsMax: number,
    late: ErrorRecord,
    ask: Ask,
    transfer: readonly Transferable[] = [],
  ): Asked<Reply> {
    let id = 0;
    const withdrawn = (refusal: ErrorRecord): AskReply<Reply> => {
      this.#send({ id, withdrawn: true }, []);
      return { id, ok: false, refusal };
    };
    const reply = this.#pending.ask(
      (newId) => {
        id = newId;
        this.#send({ id, ask }, transfer);
      },
      { waitMsMax, onTimeout: () => withdrawn(late) },
    );
    return {
      reply: answerOf(reply),
      withdraw: (reason) => {
        if (this.#pending.waits(id)) this.#pending.reply(id, withdrawn(reason));
      },
    };
  }

  /** Sends what needs no reply, in its order among the questions. */
  tell(note: Note, transfer: readonly Transferable[] = []): void {
    this.#send(note, transfer);
  }

  close(): void {
    this.#port.close();
  }

  #send(message: Question<Ask> | Withdrawal | Note, transfer: readonly Transferable[]): void {
    if (!this.#inTurns) {
      this.#port.postMessage(message, [...transfer]);
      return;
    }
    if (this.#turn.push(message) > 1) return;
    setImmediate(() => {
      this.#port.postMessage(this.#turn);
      this.#turn = [];
    });
  }
}

async function answerOf<Reply>(reply: Promise<AskReply<Reply>>): Promise<Reply> {
  const got = await reply;
  if (got.ok) return got.answer;
  throw new AskRefused(got.refusal);
}
