/**
 * Questions and replies between threads and processes (a _port_ of the glossary). To _ask_ is to send a
 * question. Runs on any thread, and in the supervisor process.
 *
 * PendingReplies keeps the promises of questions until their replies come. Its owner sends the questions, by
 * whatever carries messages: gateway/supervisor-link.ts and supervisor/gateway-process.ts by IPC. AskPort
 * sends questions over a MessagePort: request/intake.ts asks for the parsing of a large body, a worker for a
 * count of tokens. AskPort withdraws a question when its time is over, or when its asker calls `withdraw`.
 *
 * Must hold: each question gets one reply, also if its time is over or the other end is gone. A reply that
 * came before its time was over counts, also if this thread was too busy to read it. An owner of
 * PendingReplies that notices the end of the other side calls `replyToAll`; otherwise askers wait for ever.
 * An owner of an AskPort need not call it: the other end is the main thread, which ends with the process.
 */
import type { MessagePort, Transferable } from 'node:worker_threads';
import { invariant, type ErrorRecord } from './errors.js';
import { SlotArray } from './slot-array.js';

/** How long to wait for a reply, and which reply to assume after that. */
interface WaitBound<Reply> {
  readonly waitMsMax: number;
  readonly onTimeout: () => Reply;
}

interface WaitingQuestion<Reply> {
  /** 0 until `ask` has a slot for the question. */
  id: number;
  readonly resolve: (reply: Reply) => void;
  readonly timer: NodeJS.Timeout | undefined;
}

/**
 * The id of a question consists of a count (33 bits) and of its slot in `#waiting` (20 bits), which a number
 * holds exactly. The count keeps a late reply from being taken for that of a later question in the
 * same slot.
 */
const SLOTS_MAX = 2 ** 20;
/**
 * After so many questions the count begins again, after 9 days at 10,000 questions a second. It begins at 1:
 * no question has the id 0, which gateway/messages.ts uses (LAST_SNAPSHOT_ID).
 */
const COUNTS_MAX = 2 ** 33;

export class PendingReplies<Reply> {
  readonly #bound: WaitBound<Reply> | undefined;
  readonly #waiting = new SlotArray<WaitingQuestion<Reply>>();
  #count = 0;

  /** `bound` is for each `ask` without a bound of its own. A question without any bound waits for ever. */
  constructor(bound?: WaitBound<Reply>) {
    this.#bound = bound;
  }

  /** How many questions wait for a reply. */
  get size(): number {
    return this.#waiting.size;
  }

  /**
   * Asks a question: before it returns, it calls `send` with the id that the reply must have. The promise
   * rejects only if `send` throws; then the question waits no longer.
   */
  ask(send: (id: number) => void, bound = this.#bound): Promise<Reply> {
    return new Promise((resolve) => {
      const timer = bound && setTimeout(() => this.#onTime(waiting.id, bound), bound.waitMsMax);
      // The timer does not keep a thread or process alive.
      timer?.unref();
      const waiting: WaitingQuestion<Reply> = { id: 0, resolve, timer };
      const slot = this.#waiting.add(waiting);
      invariant(slot < SLOTS_MAX, 'the slot of a question fits its id');
      this.#count = (this.#count % (COUNTS_MAX - 1)) + 1;
      waiting.id = this.#count * SLOTS_MAX + slot;
      try {
        send(waiting.id);
      } catch (error) {
        this.#take(waiting.id);
        // Rejects this promise.
        throw error;
      }
    });
  }

  /**
   * Timers run before ports and pipes are read. So if this thread was late, the reply may have come in time:
   * one more event-loop turn reads it.
   */
  #onTime(id: number, bound: WaitBound<Reply>): void {
    setImmediate(() => {
      if (this.waits(id)) this.reply(id, bound.onTimeout());
    });
  }

  /** Whether the question still waits for its reply. */
  waits(id: number): boolean {
    return this.#waiting.at(id % SLOTS_MAX)?.id === id;
  }

  /** Resolves the question with `reply`. A reply to a question that no longer waits is dropped. */
  reply(id: number, reply: Reply): void {
    this.#take(id)?.resolve(reply);
  }

  /** Ends the wait of a question; undefined if it does not wait. */
  #take(id: number): WaitingQuestion<Reply> | undefined {
    const slot = id % SLOTS_MAX;
    const waiting = this.#waiting.at(slot);
    if (waiting?.id !== id) return undefined;
    this.#waiting.remove(slot);
    clearTimeout(waiting.timer);
    return waiting;
  }

  /** Resolves every question with `reply`, because the other end is gone. */
  replyToAll(reply: Reply): void {
    // Over a copy: `reply` removes from the list.
    for (const { id } of [...this.#waiting]) this.reply(id, reply);
  }
}

export interface Question<Content = unknown> {
  readonly id: number;
  /** What is asked. */
  readonly ask: Content;
}

/** The asker no longer wants the reply. The other end may drop the work, and then rejects the question. */
export interface Withdrawal {
  readonly id: number;
  readonly withdrawn: true;
}

/** The other end sends one reply to each question, even if the question was withdrawn. */
export type AskReply<Reply = unknown> =
  | { readonly id: number; readonly ok: true; readonly result: Reply }
  | { readonly id: number; readonly ok: false; readonly rejection: ErrorRecord };

/** The other end rejected the question (full queue, failed task), or the question was withdrawn. */
export class AskRejected extends Error {
  readonly rejection: ErrorRecord;

  constructor(rejection: ErrorRecord) {
    super(rejection.message);
    this.name = 'AskRejected';
    this.rejection = rejection;
  }
}

/** Resolves as `reply` does, or with `otherwise(rejection)` if `reply` rejects with an AskRejected. */
export async function replyOrElse<T>(
  reply: Promise<T>,
  otherwise: (rejection: ErrorRecord) => T,
): Promise<T> {
  try {
    return await reply;
  } catch (error) {
    if (!(error instanceof AskRejected)) throw error;
    return otherwise(error.rejection);
  }
}

/** A question whose wait is bounded. */
export interface PendingQuestion<Reply> {
  /** Rejects with an AskRejected: the `late` of `askWithin`, the reason of `withdraw`, or the other end's. */
  readonly reply: Promise<Reply>;
  /** Withdraws the question. Does nothing if the question no longer waits. */
  withdraw(reason: ErrorRecord): void;
}

/**
 * The asking end of a port. The calls in flight bound its questions: each call asks one at a time, and the
 * other end rejects what it cannot queue. With `isBatched`, the messages of one event-loop turn are sent as
 * one array, and the objects in `transfer` are copied. Replies may come as arrays in any case.
 *
 * `Message` is the type of what `send` takes.
 */
export class AskPort<Content, Reply, Message = never> {
  readonly #port: MessagePort;
  readonly #isBatched: boolean;
  readonly #pending = new PendingReplies<AskReply<Reply>>();
  /** With `isBatched`, the messages of this turn, to be sent at its end. */
  #turnMessages: (Question<Content> | Withdrawal | Message)[] = [];

  constructor(port: MessagePort, { isBatched = false } = {}) {
    this.#port = port;
    this.#isBatched = isBatched;
    port.on('message', (message: AskReply<Reply> | readonly AskReply<Reply>[]) => {
      // Only an array has a length. `Array.isArray` would not narrow the type of a readonly array.
      if (!('length' in message)) this.#pending.reply(message.id, message);
      else for (const reply of message) this.#pending.reply(reply.id, reply);
    });
  }

  /** Resolves with the reply, or rejects with AskRejected. Waits without a bound: the reply must come. */
  ask(ask: Content): Promise<Reply> {
    return resultOf(this.#pending.ask((id) => this.#post({ id, ask }, [])));
  }

  /**
   * Asks, but withdraws the question after `waitMsMax` and then rejects with `late`. Objects in `transfer` go
   * to the other thread: do not use them afterwards.
   */
  askWithin(
    waitMsMax: number,
    late: ErrorRecord,
    ask: Content,
    transfer: readonly Transferable[] = [],
  ): PendingQuestion<Reply> {
    let id = 0;
    /** Withdraws the question at the other end, and returns what the asker gets in place of its reply. */
    const withdrawWith = (rejection: ErrorRecord): AskReply<Reply> => {
      this.#post({ id, withdrawn: true }, []);
      return { id, ok: false, rejection };
    };
    const reply = this.#pending.ask(
      (newId) => {
        id = newId;
        this.#post({ id, ask }, transfer);
      },
      { waitMsMax, onTimeout: () => withdrawWith(late) },
    );
    return {
      reply: resultOf(reply),
      withdraw: (reason) => {
        if (this.#pending.waits(id)) this.#pending.reply(id, withdrawWith(reason));
      },
    };
  }

  /** Sends a message that needs no reply. It arrives after the messages and questions sent before. */
  send(message: Message, transfer: readonly Transferable[] = []): void {
    this.#post(message, transfer);
  }

  /** Call it as the thread ends. Questions that still wait get no reply, which nobody is left to need. */
  close(): void {
    this.#port.close();
  }

  #post(message: Question<Content> | Withdrawal | Message, transfer: readonly Transferable[]): void {
    if (!this.#isBatched) {
      this.#port.postMessage(message, [...transfer]);
      return;
    }
    // The first message of a turn schedules the sending of the array; later ones only join the array.
    if (this.#turnMessages.push(message) > 1) return;
    setImmediate(() => {
      const messages = this.#turnMessages;
      this.#turnMessages = [];
      this.#port.postMessage(messages);
    });
  }
}

async function resultOf<Reply>(reply: Promise<AskReply<Reply>>): Promise<Reply> {
  const received = await reply;
  if (received.ok) return received.result;
  throw new AskRejected(received.rejection);
}
