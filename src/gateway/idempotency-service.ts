/**
 * Who has which `Idempotency-Key`: calls in progress, and the responses of those that have ended. Main
 * thread.
 *
 *     no record → in progress (of a listener) → stored → no record (too old, or the oldest of too many)
 *                                             → no record (abandoned, or its listener has died)
 *
 * Ports of several listeners have no mutual order, yet a client that has its response from one may ask again
 * at another: so all ports are emptied by hand before a lock is judged, and before a flush looks for the
 * responses of its charges. Where several processes serve, a new key is taken from all of them, and is theirs
 * again when the response is on disk.
 */
import { receiveMessageOnPort, type MessagePort } from 'node:worker_threads';
import { asWallMs } from '../core/units.js';
import type { Clock } from '../core/clock.js';
import type { Settings } from '../config/schema.js';
import type { ErrorRecord } from '../core/errors.js';
import type { JournalReader } from '../ledger/journal.js';
import type { AskReply, Question } from '../core/ask-port.js';
import type { LockRequest, LockReply, LockMessage } from '../channel/idempotency-channel.js';
import { nameOfResponse, type ResponseKey } from '../registry/stored-response.js';
import {
  type ResponseChanges,
  StoredResponses,
  type StoredResponsesOptions,
} from '../store/stored-responses.js';
import type { FlushedResponses } from '../store/flush.js';
import type { SharedLocks } from '../sharing/shared-locks.js';
import type { Log } from '../telemetry/log.js';

/**
 * Bytes of stored responses that are on their way to clients, of all listeners: slow readers hold them for a
 * while.
 */
const REPLAY_BYTES_MAX = 128 * 1024 * 1024;

/** Answers expire by the hour. */
const SWEEP_PERIOD_MS = 60_000;

const UNREADABLE: ErrorRecord = {
  code: 'internal_error',
  message:
    'The gateway could not read its books, and the call was not made. It was not billed; try it again.',
};

export interface IdempotencyServiceOptions {
  readonly settings: Pick<Settings, 'idempotency' | 'limits'>;
  /** Whether a response may be given again before it is on disk, as the settings say at the moment. */
  readonly replaysUnwritten: () => boolean;
  readonly store: StoredResponsesOptions['store'];
  /** Keys that are taken by any process of the host; absent if this is the only one. */
  readonly shared?: Pick<SharedLocks, 'take' | 'giveBack'> | undefined;
  /** One a listener. */
  readonly journals: readonly Pick<JournalReader, 'hasDrained'>[];
  readonly clock: Clock;
  readonly log: Log;
}

interface ListenerEnd {
  readonly port: MessagePort;
  replayBytes: number;
}

interface InProgress {
  readonly lock: LockRequest;
  readonly listener: number;
}

interface Asked {
  readonly port: MessagePort;
  readonly listener: ListenerEnd;
  readonly index: number;
  readonly question: Question;
}

type FromChannel = Question | LockMessage;

export class IdempotencyService implements FlushedResponses {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #responses: StoredResponses;
  readonly #shared: IdempotencyServiceOptions['shared'];
  /**
   * Whether a response may be given again before it is on disk: with `commit` its first client does not have
   * its end yet.
   */
  readonly #replaysUnwritten: () => boolean;
  /** Calls in progress: not more than calls in flight. */
  readonly #locksMax: number;
  readonly #listeners = new Map<number, ListenerEnd>();
  readonly #inProgress = new Map<string, InProgress>();
  /** Taken from the ports and not judged yet: one a connection at most. */
  #asked: Asked[] = [];
  #replayBytes = 0;
  #sweptAtMs = -Infinity;

  constructor({
    settings,
    replaysUnwritten,
    store,
    shared,
    journals,
    clock,
    log,
  }: IdempotencyServiceOptions) {
    this.#clock = clock;
    this.#log = log;
    this.#shared = shared;
    this.#replaysUnwritten = replaysUnwritten;
    this.#locksMax = settings.limits.calls_in_flight;
    this.#responses = new StoredResponses({
      store,
      keepHours: settings.idempotency.keep_hours,
      storeBytesMax: settings.idempotency.store_bytes,
      isDrained: ({ listener, position }) => journals[listener]!.hasDrained(position),
      clock,
    });
  }

  /** A new listener asks over `port`. */
  attach(index: number, port: MessagePort): void {
    const listener = { port, replayBytes: 0 };
    this.#listeners.set(index, listener);
    port.on('message', (message: FromChannel) => {
      this.#take(index, listener, message);
      // What the others have said before is known before anything is judged; a note by itself is not worth
      // the look.
      if (this.#asked.length > 0) this.#settle();
    });
  }

  /** The listener has died and its journal has been drained: its keys in progress are free again. */
  detach(index: number): void {
    const listener = this.#listeners.get(index);
    if (listener === undefined) return;
    this.#settle();
    this.#listeners.delete(index);
    this.#replayBytes -= listener.replayBytes;
    listener.port.close();
    const ended = this.#responses.dropUncharged(index);
    for (const [name, running] of this.#inProgress) {
      if (running.listener !== index) continue;
      this.#inProgress.delete(name);
      ended.push(running.lock);
    }
    this.#giveBack(ended);
  }

  due(): ResponseChanges | undefined {
    this.#settle();
    return this.#responses.due();
  }

  noteFailed(): void {
    this.#responses.noteFailed();
  }

  /**
   * To be called often: removes responses that are too old, once a minute, and what could not be given back.
   */
  onSweep(): void {
    this.#giveBack([]);
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#sweptAtMs < SWEEP_PERIOD_MS) return;
    this.#sweptAtMs = nowMs;
    try {
      this.#responses.expire();
    } catch (error) {
      this.#log.warn('answers that are too old could not be removed', { error: String(error) });
    }
  }

  noteWritten(changes: ResponseChanges): void {
    this.#responses.noteWritten(changes);
    this.#giveBack([...changes.kept, ...changes.forgotten]);
  }

  /** Reads all ports to their ends, then judges the locks that were in them. */
  #settle(): void {
    for (const [index, listener] of this.#listeners) {
      for (;;) {
        const received = receiveMessageOnPort(listener.port) as { message: FromChannel } | undefined;
        if (received === undefined) break;
        this.#take(index, listener, received.message);
      }
    }
    const asked = this.#asked;
    this.#asked = [];
    for (const one of asked) this.#response(one);
  }

  #take(index: number, listener: ListenerEnd, message: FromChannel): void {
    if ('ask' in message) {
      this.#asked.push({ index, listener, port: listener.port, question: message });
      return;
    }
    switch (message.kind) {
      case 'keep': {
        const { lock: claim, stream, bytes, position } = message;
        this.#inProgress.delete(nameOfResponse(claim));
        const endedMs = asWallMs(Math.floor(this.#clock.wallMs()));
        const kept = this.#responses.keep(
          { ...claim, endedMs, stream, bytes },
          { listener: index, position },
        );
        if (!kept) this.#giveBack([claim]);
        return;
      }
      case 'abandon':
        this.#inProgress.delete(nameOfResponse(message.lock));
        this.#giveBack([message.lock]);
        return;
      case 'forget':
        this.#responses.forget(message.lock, { listener: index, position: message.position });
        return;
      case 'replayed':
        this.#countReplay(listener, -message.bytes);
    }
  }

  #response({ index, listener, port, question: { id, ask } }: Asked): void {
    let answer: AskReply;
    try {
      answer = { id, ok: true, answer: this.#judge(index, listener, ask as LockRequest) };
    } catch (error) {
      this.#log.error('a kept answer cannot be read', { error: String(error) });
      answer = { id, ok: false, refusal: UNREADABLE };
      this.#giveBack([ask as LockRequest]);
    }
    port.postMessage(answer);
  }

  #judge(index: number, listener: ListenerEnd, lock: LockRequest): LockReply {
    const name = nameOfResponse(lock);
    const running = this.#inProgress.get(name);
    if (running !== undefined) {
      return stateOfRunning(running.lock.bodyDigest, lock);
    }
    let found = this.#responses.find(lock);
    if (found === undefined) {
      if (this.#inProgress.size >= this.#locksMax) return { state: 'busy' };
      const heldByOthers = this.#shared?.take(lock);
      if (heldByOthers !== undefined) return stateOfRunning(heldByOthers, lock);
      // Another process may have had it, and have given it back with its response on disk since that was
      // looked at.
      found = this.#shared && this.#responses.findAnew(lock);
      if (found !== undefined) this.#giveBack([lock]);
    }
    if (found === undefined) {
      this.#inProgress.set(name, { lock, listener: index });
      return { state: 'new' };
    }
    const { bodyDigest, stream, bytes } = found.record;
    if (bodyDigest !== lock.bodyDigest) return { state: 'other_body' };
    // Its client has not been given its end either.
    if (found.unwritten && !this.#replaysUnwritten()) return { state: 'in_progress' };
    if (bytes === undefined) return { state: 'not_kept' };
    if (this.#replayBytes + bytes.length > REPLAY_BYTES_MAX) return { state: 'busy' };
    this.#countReplay(listener, bytes.length);
    return { state: 'finished', stream, bytes };
  }

  /** Those that are over: one whose answer was forgotten may have been claimed anew. */
  #giveBack(keys: readonly ResponseKey[]): void {
    this.#shared?.giveBack(keys.filter((key) => !this.#inProgress.has(nameOfResponse(key))));
  }

  #countReplay(listener: ListenerEnd, bytes: number): void {
    listener.replayBytes += bytes;
    this.#replayBytes += bytes;
  }
}

function stateOfRunning(bodyDigest: string, lock: LockRequest): LockReply {
  return { state: bodyDigest === lock.bodyDigest ? 'in_progress' : 'other_body' };
}
