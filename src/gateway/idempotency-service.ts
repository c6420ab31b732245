/**
 * Who has which `Idempotency-Key`: calls in progress, and the answers of those that have ended. Main thread.
 *
 *     no record → in progress (of a listener) → kept → no record, when it is too old, or the oldest of too many
 *                                             → no record (abandoned, or its listener has died)
 *
 * Ports of several listeners have no mutual order, yet a client that has its answer from one may ask again at another: so all
 * ports are emptied by hand before a claim is judged, and before a flush looks for the answers of its charges.
 * Where several processes serve, a new key is taken from all of them, and is theirs again when the answer is on disk.
 */
import { receiveMessageOnPort, type MessagePort } from 'node:worker_threads';
import { asWallMs } from '../core/units.js';
import type { Clock } from '../core/clock.js';
import type { Settings } from '../config/schema.js';
import type { ErrorRecord } from '../core/errors.js';
import type { JournalReader } from '../ledger/journal.js';
import type { Answer, Question } from '../channel/ask-port.js';
import type { Claim, ClaimAnswer, ClaimNote } from '../channel/idempotency-channel.js';
import { nameOfAnswer, type AnswerKey } from '../registry/stored-response.js';
import type { AnswerChanges } from '../store/stored-responses.js';
import type { FlushedAnswers } from '../store/flush.js';
import { KeptAnswers, type KeptAnswersOptions } from '../store/stored-responses.js';
import type { SharedClaims } from '../sharing/shared-locks.js';
import type { Log } from '../telemetry/log.js';

/** Bytes of kept answers that are on their way to clients, of all listeners: slow readers hold them for a while. */
const REPLAY_BYTES_MAX = 128 * 1024 * 1024;

/** Answers expire by the hour. */
const SWEEP_PERIOD_MS = 60_000;

const UNREADABLE: ErrorRecord = {
  code: 'internal_error',
  message:
    'The gateway could not read its books, and the call was not made. It was not billed; try it again.',
};

export interface ClaimDeskOptions {
  readonly settings: Pick<Settings, 'idempotency' | 'limits'>;
  /** Whether an answer may be given again before it is on disk, as the settings say at the moment. */
  readonly replaysUnwritten: () => boolean;
  readonly store: KeptAnswersOptions['store'];
  /** Keys that are taken by any process of the host; absent where this is the only one. */
  readonly shared?: Pick<SharedClaims, 'take' | 'giveBack'> | undefined;
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
  readonly claim: Claim;
  readonly listener: number;
}

interface Asked {
  readonly port: MessagePort;
  readonly listener: ListenerEnd;
  readonly index: number;
  readonly question: Question;
}

type FromLink = Question | ClaimNote;

export class ClaimDesk implements FlushedAnswers {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #answers: KeptAnswers;
  readonly #shared: ClaimDeskOptions['shared'];
  /** Whether an answer may be given again before it is on disk: with `commit` its first client does not have its end yet. */
  readonly #replaysUnwritten: () => boolean;
  /** Calls in progress: not more than calls in flight. */
  readonly #claimsMax: number;
  readonly #listeners = new Map<number, ListenerEnd>();
  readonly #inProgress = new Map<string, InProgress>();
  /** Taken from the ports and not judged yet: one a connection at most. */
  #asked: Asked[] = [];
  #replayBytes = 0;
  #sweptAtMs = -Infinity;

  constructor({ settings, replaysUnwritten, store, shared, journals, clock, log }: ClaimDeskOptions) {
    this.#clock = clock;
    this.#log = log;
    this.#shared = shared;
    this.#replaysUnwritten = replaysUnwritten;
    this.#claimsMax = settings.limits.calls_in_flight;
    this.#answers = new KeptAnswers({
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
    port.on('message', (message: FromLink) => {
      this.#take(index, listener, message);
      // What the others have said before is known before anything is judged; a note by itself is not worth the look.
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
    const ended = this.#answers.dropUncharged(index);
    for (const [name, running] of this.#inProgress) {
      if (running.listener !== index) continue;
      this.#inProgress.delete(name);
      ended.push(running.claim);
    }
    this.#giveBack(ended);
  }

  due(): AnswerChanges | undefined {
    this.#settle();
    return this.#answers.due();
  }

  noteFailed(): void {
    this.#answers.noteFailed();
  }

  /** To be called often: removes answers that are too old, once a minute, and what could not be given back. */
  onSweep(): void {
    this.#giveBack([]);
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#sweptAtMs < SWEEP_PERIOD_MS) return;
    this.#sweptAtMs = nowMs;
    try {
      this.#answers.expire();
    } catch (error) {
      this.#log.warn('answers that are too old could not be removed', { error: String(error) });
    }
  }

  noteWritten(changes: AnswerChanges): void {
    this.#answers.noteWritten(changes);
    this.#giveBack([...changes.kept, ...changes.forgotten]);
  }

  /** Reads all ports to their ends, then judges the claims that were in them. */
  #settle(): void {
    for (const [index, listener] of this.#listeners) {
      for (;;) {
        const received = receiveMessageOnPort(listener.port) as { message: FromLink } | undefined;
        if (received === undefined) break;
        this.#take(index, listener, received.message);
      }
    }
    const asked = this.#asked;
    this.#asked = [];
    for (const one of asked) this.#answer(one);
  }

  #take(index: number, listener: ListenerEnd, message: FromLink): void {
    if ('ask' in message) {
      this.#asked.push({ index, listener, port: listener.port, question: message });
      return;
    }
    switch (message.kind) {
      case 'keep': {
        const { claim, stream, bytes, position } = message;
        this.#inProgress.delete(nameOfAnswer(claim));
        const endedMs = asWallMs(Math.floor(this.#clock.wallMs()));
        const kept = this.#answers.keep({ ...claim, endedMs, stream, bytes }, { listener: index, position });
        if (!kept) this.#giveBack([claim]);
        return;
      }
      case 'abandon':
        this.#inProgress.delete(nameOfAnswer(message.claim));
        this.#giveBack([message.claim]);
        return;
      case 'forget':
        this.#answers.forget(message.claim, { listener: index, position: message.position });
        return;
      case 'replayed':
        this.#countReplay(listener, -message.bytes);
    }
  }

  #answer({ index, listener, port, question: { id, ask } }: Asked): void {
    let answer: Answer;
    try {
      answer = { id, ok: true, answer: this.#judge(index, listener, ask as Claim) };
    } catch (error) {
      this.#log.error('a kept answer cannot be read', { error: String(error) });
      answer = { id, ok: false, refusal: UNREADABLE };
      this.#giveBack([ask as Claim]);
    }
    port.postMessage(answer);
  }

  #judge(index: number, listener: ListenerEnd, claim: Claim): ClaimAnswer {
    const name = nameOfAnswer(claim);
    const running = this.#inProgress.get(name);
    if (running !== undefined) {
      return stateOfRunning(running.claim.bodyDigest, claim);
    }
    let found = this.#answers.find(claim);
    if (found === undefined) {
      if (this.#inProgress.size >= this.#claimsMax) return { state: 'busy' };
      const elsewhere = this.#shared?.take(claim);
      if (elsewhere !== undefined) return stateOfRunning(elsewhere, claim);
      // Another process may have had it, and have given it back with its answer on disk since that was looked at.
      found = this.#shared && this.#answers.findAnew(claim);
      if (found !== undefined) this.#giveBack([claim]);
    }
    if (found === undefined) {
      this.#inProgress.set(name, { claim, listener: index });
      return { state: 'new' };
    }
    const { bodyDigest, stream, bytes } = found.record;
    if (bodyDigest !== claim.bodyDigest) return { state: 'other_body' };
    // Its client has not been given its end either.
    if (found.unwritten && !this.#replaysUnwritten()) return { state: 'in_progress' };
    if (bytes === undefined) return { state: 'not_kept' };
    if (this.#replayBytes + bytes.length > REPLAY_BYTES_MAX) return { state: 'busy' };
    this.#countReplay(listener, bytes.length);
    return { state: 'finished', stream, bytes };
  }

  /** Those that are over: one whose answer was forgotten may have been claimed anew. */
  #giveBack(keys: readonly AnswerKey[]): void {
    this.#shared?.giveBack(keys.filter((key) => !this.#inProgress.has(nameOfAnswer(key))));
  }

  #countReplay(listener: ListenerEnd, bytes: number): void {
    listener.replayBytes += bytes;
    this.#replayBytes += bytes;
  }
}

function stateOfRunning(bodyDigest: string, claim: Claim): ClaimAnswer {
  return { state: bodyDigest === claim.bodyDigest ? 'in_progress' : 'other_body' };
}
