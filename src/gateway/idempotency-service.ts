/**
 * The idempotency service: knows which calls with an `Idempotency-Key` are in progress, and stores the
 * responses of those that have ended. Listeners ask it over their ports (channel/idempotency-channel.ts), and
 * store/flush.ts writes its responses. accounting.ts owns it, on the main thread of a gateway process.
 *
 *     no record → in progress (of a listener) → stored → no record (expired, evicted as the oldest, or
 *                                                        forgotten, because its charge was taken back)
 *                                             → stored without bytes (too many): a replay is rejected
 *                                             → no record (abandoned, or its listener died)
 *
 * If several processes share the host, each new lock is also taken in SharedLocks (a _shared lock_), and
 * released there when the response is on disk. A call in progress here has the lock of its key.
 *
 * Must hold, all in test/unit/gateway/idempotency-service.test.ts:
 * - Before the service decides on a lock, and before a flush gets the responses, it reads all ports to their
 *   ends. The ports have no common order: a client may get its response from one listener and send the key
 *   again to another, and the call would be made and charged twice. So a listener posts `keep` before its
 *   client has the last byte.
 * - A listener posts one `replayed` for each `finished` that it got, or the bytes count as being sent for
 *   ever, and after REPLAYING_BYTES_MAX of them every replay is rejected.
 * - A response is stored after the journal's record of its charge was read, so that no replay is unpaid.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { receiveMessageOnPort, type MessagePort } from 'node:worker_threads';
import { asWallMs } from '../core/units.js';
import type { Clock } from '../core/clock.js';
import type { Settings } from '../config/schema.js';
import type { ErrorRecord } from '../core/errors.js';
import type { JournalReader } from '../ledger/journal.js';
import type { AskReply, Question } from '../core/ask-port.js';
import type { LockRequest, LockReply, LockMessage } from '../channel/idempotency-channel.js';
import { nameOfResponse, type ResponseKey } from '../registry/stored-response.js';
import { isRowError } from '../store/record-codec.js';
import { EXPIRY_PAUSE_MS, type ResponseChanges } from '../store/response-table.js';
import {
  type FoundResponse,
  StoredResponses,
  type StoredResponsesOptions,
} from '../store/stored-responses.js';
import type { FlushedResponses } from '../store/flush.js';
import type { SharedLocks } from '../sharing/shared-locks.js';
import type { Log } from '../telemetry/log.js';

/** Bytes of stored responses that all listeners may be sending; slow clients take them for a while. */
const REPLAYING_BYTES_MAX = 128 * 1024 * 1024;

/** How often expired responses are removed. They expire after hours, so that is often enough. */
const SWEEP_PERIOD_MS = 60_000;

const UNREADABLE: ErrorRecord = {
  code: 'internal_error',
  message:
    'The gateway could not read its books, and the call was not made. It was not billed; try it again.',
};

const UNLOCKABLE: ErrorRecord = {
  code: 'internal_error',
  message:
    'The gateway could not record that a call with this Idempotency-Key is in progress, and the call was not made. It was not billed; try it again.',
};

/** The file of the shared locks cannot be read or written, such as on a full disk. */
class SharedLockError extends Error {}

export interface IdempotencyServiceOptions {
  readonly settings: Pick<Settings, 'idempotency' | 'limits'>;
  /** Returns whether a response may be replayed before it is on disk, by the settings of that moment. */
  readonly replaysUnwritten: () => boolean;
  readonly store: StoredResponsesOptions['store'];
  /** Locks that the processes of the host share; absent if this is the only one. */
  readonly shared?: Pick<SharedLocks, 'acquire' | 'release'> | undefined;
  /** The journal of each listener, by index. */
  readonly journals: readonly Pick<JournalReader, 'hasDrained' | 'hasAppended'>[];
  readonly clock: Clock;
  readonly log: Log;
}

/** This thread's end of a listener's port, and the bytes of the replays that the listener sends now. */
interface ListenerPort {
  readonly index: number;
  readonly port: MessagePort;
  replayingBytes: number;
}

interface CallInProgress {
  readonly lock: LockRequest;
  readonly listener: number;
}

interface LockQuestion {
  readonly listener: ListenerPort;
  readonly question: Question;
}

type ListenerMessage = Question | LockMessage;

export class IdempotencyService implements FlushedResponses {
  readonly #options: IdempotencyServiceOptions;
  readonly #responses: StoredResponses;
  readonly #listeners = new Map<number, ListenerPort>();
  readonly #inProgress = new Map<string, CallInProgress>();
  /** Lock requests that were read from the ports and not decided yet: at most one for each connection. */
  #questions: LockQuestion[] = [];
  /** What fails now. It was logged as it began to: not once a request, which clients repeat. */
  readonly #failing = new Set<'store' | 'lock'>();
  /** The message of the damaged row that was logged last. */
  #loggedDamage: string | undefined;
  #replayingBytes = 0;
  #sweptMs = -Infinity;
  #isClosed = false;

  constructor(options: IdempotencyServiceOptions) {
    const { settings, store, journals, clock } = options;
    this.#options = options;
    this.#responses = new StoredResponses({
      store,
      keepHours: settings.idempotency.keep_hours,
      storeBytesMax: settings.idempotency.store_bytes,
      isDrained: ({ listener, position }) => journals[listener]!.hasDrained(position),
      isCharged: ({ listener, position }) => journals[listener]!.hasAppended(position),
      clock,
    });
  }

  /** Connects a new listener, by this thread's end of its port. */
  attach(listenerIndex: number, port: MessagePort): void {
    const listener = { index: listenerIndex, port, replayingBytes: 0 };
    this.#listeners.set(listenerIndex, listener);
    port.on('message', (message: ListenerMessage) => {
      this.#onMessage(listener, message);
      // The other ports are read before a lock is decided on. A message without a reply does not need that.
      if (this.#questions.length > 0) this.#readPorts();
    });
  }

  /**
   * To be called when the listener has died, before its successor starts: calls that are not charged by then
   * are never charged. Releases the locks of its calls.
   */
  detach(listenerIndex: number): void {
    const listener = this.#listeners.get(listenerIndex);
    if (listener === undefined) return;
    this.#readPorts();
    this.#listeners.delete(listenerIndex);
    this.#replayingBytes -= listener.replayingBytes;
    listener.port.close();
    const endedKeys = this.#responses.dropUncharged(listenerIndex);
    for (const [name, call] of this.#inProgress) {
      if (call.listener !== listenerIndex) continue;
      this.#inProgress.delete(name);
      endedKeys.push(call.lock);
    }
    this.#releaseShared(endedKeys);
  }

  // FlushedResponses (store/flush.ts): a flush calls `due`, writes, and calls `recordWritten` or
  // `recordFailed`.
  due(): ResponseChanges | undefined {
    this.#readPorts();
    return this.#responses.due();
  }

  recordWritten(changes: ResponseChanges): void {
    this.#responses.recordWritten(changes);
    this.#releaseShared([...changes.kept, ...changes.forgotten]);
  }

  recordFailed(): void {
    this.#responses.recordFailed();
  }

  /**
   * Called by Accounting after each flush. Tries again to release the shared locks whose release failed, and
   * once a minute begins to remove expired responses.
   */
  onSweep(): void {
    this.#releaseShared([]);
    if (this.#options.clock.monotonicMs() - this.#sweptMs >= SWEEP_PERIOD_MS) void this.#expire();
  }

  /** Removes all expired responses, however many, because they are on disk unencrypted. Never rejects. */
  async #expire(): Promise<void> {
    try {
      while (!this.#isClosed) {
        this.#sweptMs = this.#options.clock.monotonicMs();
        if (!this.#responses.expire()) return;
        await pause(EXPIRY_PAUSE_MS, undefined, { ref: false });
      }
    } catch (error) {
      this.#options.log.warn('expired responses could not be removed', { error: String(error) });
    }
  }

  /** To be called before the store is closed: nothing more is removed. */
  close(): void {
    this.#isClosed = true;
  }

  /** Reads all ports to their ends, then decides on the lock requests among the messages, in their order. */
  #readPorts(): void {
    for (const listener of this.#listeners.values()) {
      for (;;) {
        const received = receiveMessageOnPort(listener.port);
        if (received === undefined) break;
        this.#onMessage(listener, received.message as ListenerMessage);
      }
    }
    const questions = this.#questions;
    this.#questions = [];
    for (const question of questions) this.#reply(question);
  }

  /** Carries a message out, or adds a lock request to `#questions`, on which `#readPorts` decides. */
  #onMessage(listener: ListenerPort, message: ListenerMessage): void {
    if ('ask' in message) {
      this.#questions.push({ listener, question: message });
      return;
    }
    switch (message.kind) {
      case 'keep': {
        const { lock, stream, fallback, bytes, position } = message;
        this.#inProgress.delete(nameOfResponse(lock));
        const endedMs = asWallMs(Math.floor(this.#options.clock.wallMs()));
        const isStored = this.#responses.keep(
          { ...lock, endedMs, stream, fallback, bytes },
          { listener: listener.index, position },
        );
        if (!isStored) this.#releaseShared([lock]);
        return;
      }
      case 'abandon':
        this.#inProgress.delete(nameOfResponse(message.lock));
        this.#releaseShared([message.lock]);
        return;
      case 'forget':
        this.#responses.forget(message.lock, { listener: listener.index, position: message.position });
        return;
      case 'replayed':
        this.#countReplay(listener, -message.bytes);
        return;
    }
    message satisfies never;
  }

  /** Replies in any case: a listener waits for the reply without a bound of its own. */
  #reply({ listener, question: { id, ask } }: LockQuestion): void {
    let reply: AskReply;
    try {
      reply = { id, ok: true, result: this.#decideLock(listener, ask as LockRequest) };
    } catch (error) {
      const isLockError = error instanceof SharedLockError;
      if (isLockError)
        this.#logFailure('lock', 'the lock of an Idempotency-Key cannot be taken', error.cause);
      else this.#logFailure('store', 'a stored response cannot be read', error);
      reply = { id, ok: false, rejection: isLockError ? UNLOCKABLE : UNREADABLE };
      this.#releaseShared([ask as LockRequest]);
    }
    listener.port.postMessage(reply);
  }

  /**
   * Decides on a lock: calls in progress here come first, then stored responses, then locks of other
   * processes. Throws if the store cannot be read, and SharedLockError.
   */
  #decideLock(listener: ListenerPort, lock: LockRequest): LockReply {
    const name = nameOfResponse(lock);
    const call = this.#inProgress.get(name);
    if (call !== undefined) return stateInProgress(call.lock.bodyDigest, lock);
    let stored: FoundResponse | undefined;
    try {
      stored = this.#responses.find(lock);
      this.#failing.delete('store');
      if (stored === undefined) {
        const { settings, shared } = this.#options;
        // As many calls may be in progress as may be in flight.
        if (this.#inProgress.size >= settings.limits.calls_in_flight) return { state: 'busy' };
        const digestOfOther = this.#acquireShared(lock);
        if (digestOfOther !== undefined) return stateInProgress(digestOfOther, lock);
        // Another process may have stored the response and released its lock since the lookup above.
        stored = shared && this.#responses.refreshAndFind(lock);
        if (stored !== undefined) this.#releaseShared([lock]);
      }
    } catch (error) {
      if (!isRowError(error)) throw error;
      // The call was made and charged, so it must not be made again, although its response is lost.
      if (error.message !== this.#loggedDamage)
        this.#options.log.error('a stored response is damaged and is not replayed', { error: error.message });
      this.#loggedDamage = error.message;
      this.#releaseShared([lock]);
      return { state: 'not_stored' };
    }
    if (stored === undefined) {
      this.#inProgress.set(name, { lock, listener: listener.index });
      return { state: 'new' };
    }
    const { bodyDigest, stream, fallback, bytes } = stored.record;
    if (bodyDigest !== lock.bodyDigest) return { state: 'other_body' };
    // The first client does not have the end of this response yet either.
    if (stored.isUnwritten && !this.#options.replaysUnwritten()) return { state: 'in_progress' };
    if (bytes === undefined) return { state: 'not_stored' };
    if (this.#replayingBytes + bytes.length > REPLAYING_BYTES_MAX) return { state: 'busy' };
    this.#countReplay(listener, bytes.length);
    return { state: 'finished', stream, fallback, bytes };
  }

  /** As SharedLocks.acquire; undefined if no other process shares the host. Throws SharedLockError. */
  #acquireShared(lock: LockRequest): string | undefined {
    try {
      const digestOfOther = this.#options.shared?.acquire(lock);
      this.#failing.delete('lock');
      return digestOfOther;
    } catch (cause) {
      throw new SharedLockError('', { cause });
    }
  }

  /** Logs that `what` fails, unless it has failed ever since that was logged. */
  #logFailure(what: 'store' | 'lock', text: string, error: unknown): void {
    if (this.#failing.has(what)) return;
    this.#failing.add(what);
    this.#options.log.error(text, { error: String(error) });
  }

  /** Releases shared locks, except those of keys that a new call has locked since. */
  #releaseShared(keys: readonly ResponseKey[]): void {
    this.#options.shared?.release(keys.filter((key) => !this.#inProgress.has(nameOfResponse(key))));
  }

  #countReplay(listener: ListenerPort, bytes: number): void {
    listener.replayingBytes += bytes;
    this.#replayingBytes += bytes;
  }
}

/** The reply while a call with that key is in progress, here or in another process. */
function stateInProgress(bodyDigest: string, lock: LockRequest): LockReply {
  return { state: bodyDigest === lock.bodyDigest ? 'in_progress' : 'other_body' };
}
