/**
 * Requests with replies between threads and processes (a _port_ of the glossary). Any thread, and the
 * supervisor process.
 *
 * PendingReplies holds who waits for which reply, whatever carries the messages. AskPort asks over a
 * MessagePort: a listener has a large body parsed, a worker has tokens counted. It withdraws a question when
 * its time is over or when the caller no longer wants the reply.
 *
 * Must hold: each question gets one reply, also if the far end is gone or time is over. Test:
 * unit/core/ask-port.
 */
import type { MessagePort, Transferable } from 'node:worker_threads';
import { invariant, type ErrorRecord } from './errors.js';
import { SlotList } from './slot-list.js';

/** How long to wait for a reply, and which reply to assume after that. */
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
 * An id is a slot of the list of those who wait, and a count. The count keeps a late reply from another
 * question that has the same slot.
 */
const SLOTS_MAX = 2 ** 20;

export class PendingReplies<Reply> {
  readonly #bound: WaitBound<Reply> | undefined;
  readonly #waiting = new SlotList<Waiting<Reply>>();
  #count = 0;

  /** `bound` is for each question that has none of its own. */
  constructor(bound?: WaitBound<Reply>) {
    this.#bound = bound;
  }

  /** How many questions wait for a reply. */
  get size(): number {
    return this.#waiting.size;
  }

  /** Asks a question: `send` gets the id that the reply must have. The promise never rejects. */
  ask(send: (id: number) => void, bound = this.#bound): Promise<Reply> {
    return new Promise((resolve) => {
      const timer = bound && setTimeout(() => this.reply(waiting.id, bound.onTimeout()), bound.waitMsMax);
      // The timer does not keep a thread or process alive.
      timer?.unref();
      const waiting: Waiting<Reply> = { id: 0, resolve, timer };
      const slot = this.#waiting.add(waiting);
      invariant(slot < SLOTS_MAX, 'an id has room for everybody who waits');
      waiting.id = (this.#count += 1) * SLOTS_MAX + slot;
      send(waiting.id);
    });
  }

  /** Whether the question still waits for its reply. */
  waits(id: number): boolean {
    return this.#waiting.at(id % SLOTS_MAX)?.id === id;
  }

  /** Resolves the question with `reply`. A reply that comes too late is dropped. */
  reply(id: number, reply: Reply): void {
    const slot = id % SLOTS_MAX;
    const waiting = this.#waiting.at(slot);
    if (waiting?.id !== id) return;
    this.#waiting.remove(slot);
    clearTimeout(waiting.timer);
    waiting.resolve(reply);
  }

  /** Resolves every question with `reply`: the other end is gone. */
  replyToAll(reply: Reply): void {
    for (const { id } of [...this.#waiting]) this.reply(id, reply);
  }
}

export interface Question<Ask = unknown> {
  readonly id: number;
  readonly ask: Ask;
}

/** Nobody waits for the reply any more. The other end may reply at once, and may reject. */
export interface Withdrawal {
  readonly id: number;
  readonly withdrawn: true;
}

/** The other end sends one for each question, even if it was withdrawn. */
export type AskReply<Reply = unknown> =
  | { readonly id: number; readonly ok: true; readonly result: Reply }
  | { readonly id: number; readonly ok: false; readonly rejection: ErrorRecord };

/**
 * The other end rejected the question (its queue is full, or the task failed), or the question was withdrawn.
 */
export class AskRejected extends Error {
  readonly rejection: ErrorRecord;

  constructor(rejection: ErrorRecord) {
    super(rejection.message);
    this.name = 'AskRejected';
    this.rejection = rejection;
  }
}

/** What `reply` resolves with; if the question was rejected, what `otherwise` makes of the rejection. */
export async function orRejected<T>(reply: Promise<T>, otherwise: (rejection: ErrorRecord) => T): Promise<T> {
  try {
    return await reply;
  } catch (error) {
    if (!(error instanceof AskRejected)) throw error;
    return otherwise(error.rejection);
  }
}

/** A question whose wait is bounded. */
export interface PendingQuestion<Reply> {
  /**
   * Rejects with AskRejected: of `late` if the time was over, of the reason given to `withdraw`, or of the
   * other end's rejection.
   */
  readonly reply: Promise<Reply>;
  /** Withdraws the question, if it still waits. */
  withdraw(reason: ErrorRecord): void;
}

/**
 * The end of a port that asks. The calls in flight bound its questions: each call asks one at a time, and the
 * other end rejects what it cannot queue. With `inTurns`, messages queued in one event-loop turn are sent as
 * one array, and nothing can be transferred. Replies may come as arrays in any case.
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

  /** Resolves with the reply or rejects with AskRejected. Objects in `transfer` change their owner. */
  ask(ask: Ask, transfer: readonly Transferable[] = []): Promise<Reply> {
    return resultOf(this.#pending.ask((id) => this.#send({ id, ask }, transfer)));
  }

  /** Asks, but withdraws the question after `waitMsMax` and then rejects with `late`. */
  askFor(
    waitMsMax: number,
    late: ErrorRecord,
    ask: Ask,
    transfer: readonly Transferable[] = [],
  ): PendingQuestion<Reply> {
    let id = 0;
    const withdrawn = (rejection: ErrorRecord): AskReply<Reply> => {
      this.#send({ id, withdrawn: true }, []);
      return { id, ok: false, rejection };
    };
    const reply = this.#pending.ask(
      (newId) => {
        id = newId;
        this.#send({ id, ask }, transfer);
      },
      { waitMsMax, onTimeout: () => withdrawn(late) },
    );
    return {
      reply: resultOf(reply),
      withdraw: (reason) => {
        if (this.#pending.waits(id)) this.#pending.reply(id, withdrawn(reason));
      },
    };
  }

  /** Sends a message that needs no reply. It keeps its order among the questions. */
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
      const turn = this.#turn;
      this.#turn = [];
      this.#port.postMessage(turn);
    });
  }
}

async function resultOf<Reply>(reply: Promise<AskReply<Reply>>): Promise<Reply> {
  const got = await reply;
  if (got.ok) return got.result;
  throw new AskRejected(got.rejection);
}
