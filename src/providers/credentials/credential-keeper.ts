/**
 * Renews the credentials that expire (OAuth tokens, AWS session keys), ahead of time and off the calls' path,
 * once for all threads of a process. gateway/gateway.ts owns the keeper, on the main thread. The _position_
 * of a credential is its number, which means the same spec for ever (credential-spec.ts). Its _generation_
 * rises with each new credential and each expiry.
 *
 *     missing ── renewal ──► good ── it expires ──► calls fail until a renewal succeeds
 *                  ▲          │ due (renewal-schedule.ts), rejected by the provider, or a file changed
 *                  └──────────┘
 *
 * While renewals fail, the old credential serves until it expires.
 *
 * Must hold: a credential has one renewal at a time, and a rejection of an earlier generation is ignored
 * (both in the unit test). Records with secrets go to upstream workers alone, never to listeners or logs.
 * Workers accept each record as it comes: generations begin with 0 again if reloads drop a credential.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { msToNextTick, type Clock } from '../../core/clock.js';
import {
  type CredentialError,
  credentialErrorOf,
  type CredentialSource,
  filesStateOf,
  type IssuedCredential,
  credentialWithin,
} from './credential-source.js';
import { trustedLifeMsOf, pauseMsOf, renewalMsOf } from './renewal-schedule.js';
import { openSource } from './source-loader.js';
import { nameOfSpec, type CredentialRecord, type CredentialSpec } from './credential-spec.js';

const MINUTE_MS = 60_000;
/** A renewal fails after so long. The provider chain of AWS asks several sources in turn. */
const RENEWAL_MS_MAX = 30_000;
/** Pause between renewals for rejections by a provider: a missing permission looks like a bad credential. */
const REJECTED_PAUSE_MS_MIN = 30_000;
const REJECTED_PAUSE_MS_MAX = 10 * MINUTE_MS;
/** A rejection that comes so long after the last pause has ended starts with the shortest pause again. */
const REJECTED_CALM_MS = 60 * MINUTE_MS;
/** What is due begins so late at most. */
const CHECK_PERIOD_MS = 1_000;
/** Longer, because the check makes system calls for each file (filesStateOf), on the main thread. */
const FILES_CHECK_PERIOD_MS = 10_000;
/** Life of a credential that the settings no longer name: calls from before a reload may still need it. */
const LINGER_MS = 2 * MINUTE_MS;
/** `ensure` stops waiting for a missing credential after so many failures in a row. */
const FIRST_FAILURES_MAX = 3;

interface KeeperLog {
  error(message: string, fields?: Readonly<Record<string, string | number>>): void;
  warn(message: string, fields?: Readonly<Record<string, string | number>>): void;
}

interface KeeperOptions {
  readonly specOf: (position: number) => CredentialSpec;
  /** Sends records to all upstream workers, in order. A worker that starts later gets `current`. */
  readonly send: (records: readonly CredentialRecord[]) => void;
  readonly clock: Clock;
  readonly log: KeeperLog;
  /** Returns a number uniform in [0, 1), for jitter. Tests replace it, and `open`. */
  readonly random?: () => number;
  readonly open?: (spec: CredentialSpec) => Promise<CredentialSource>;
}

/** What operators see of a credential. */
export interface CredentialStatus {
  readonly name: string;
  readonly ok: boolean;
  /** Unix milliseconds; undefined if there is no credential, or it does not expire. */
  readonly expiresMs: number | undefined;
  readonly renewals: number;
  readonly failures: number;
  /** Why the last renewal failed; undefined after a success. */
  readonly error: string | undefined;
}

/**
 * A deadline by two clocks, reached when either clock reaches it: somebody may set the wall clock, and the
 * monotonic clock stops while the machine is suspended.
 */
interface Deadline {
  readonly wallMs: number;
  readonly monotonicMs: number;
}

/** A credential that is renewed, and its present state. See CredentialStatus for `error` and the counts. */
class Entry {
  readonly name: string;
  /** Undefined before the first renewal. */
  source: CredentialSource | undefined;
  generation = 0;
  /** The credential that calls use now; undefined if there is none. */
  issued: IssuedCredential | undefined;
  /** When the credential expires; undefined if that is unknown, or if there is none. */
  expires: Deadline | undefined;
  /**
   * When the next renewal begins, unless a rejection or a change of a file makes it begin before. The first
   * renewal begins at once.
   */
  due: Deadline = { wallMs: Infinity, monotonicMs: -Infinity };
  /** The running renewal. */
  renewal: Promise<void> | undefined;
  renewals = 0;
  failures = 0;
  failuresInRow = 0;
  error: string | undefined;
  /** A provider has rejected the present credential. True until a renewal brings another one. */
  isRejected = false;
  /** A rejection starts no renewal before this time of the monotonic clock. */
  rejectedDueMs = -Infinity;
  /** The pause after the next renewal for a rejection. Each such renewal doubles the pause. */
  rejectedPauseMs = REJECTED_PAUSE_MS_MIN;
  /** What `filesStateOf` returned as the last renewal began. */
  filesState = '';
  /** When the credential is dropped, by the monotonic clock; Infinity while the settings name it. */
  dropMs = Infinity;

  constructor(
    readonly position: number,
    readonly spec: CredentialSpec,
  ) {
    this.name = nameOfSpec(spec);
  }
}

export class CredentialKeeper {
  readonly #options: KeeperOptions;
  readonly #open: (spec: CredentialSpec) => Promise<CredentialSource>;
  readonly #random: () => number;
  readonly #entries = new Map<number, Entry>();
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #filesDueMs = -Infinity;

  constructor(options: KeeperOptions) {
    this.#options = options;
    this.#open = options.open ?? openSource;
    this.#random = options.random ?? Math.random;
  }

  /** The records of all credentials that calls can use now, for a worker that starts. */
  get current(): CredentialRecord[] {
    return [...this.#entries.values()].filter(({ issued }) => issued !== undefined).map(recordOf);
  }

  get statuses(): CredentialStatus[] {
    return [...this.#entries.values()]
      .filter(({ dropMs }) => dropMs === Infinity)
      .map(({ name, issued, expires, renewals, failures, error }) => ({
        name,
        ok: issued !== undefined,
        expiresMs: issued === undefined ? undefined : expires?.wallMs,
        renewals,
        failures,
        error,
      }));
  }

  /**
   * Gets the missing credentials of these positions, and renews all of them from now on. Resolves when all
   * have a credential, or after FIRST_FAILURES_MAX failures of each missing one, or after `waitMs`. Never
   * rejects. gateway.ts calls it at start, and at each reload before workers get the new routes; then
   * `retain`. `close` ends one that waits; later calls do nothing.
   */
  async ensure(positions: readonly number[], waitMs: number): Promise<void> {
    if (this.#stop.signal.aborted) return;
    for (const position of new Set(positions)) {
      const entry = this.#entries.get(position);
      if (entry === undefined)
        this.#entries.set(position, new Entry(position, this.#options.specOf(position)));
      else entry.dropMs = Infinity;
    }
    if (this.#entries.size === 0) return;
    this.renewDue();
    this.#schedule();
    const missing = (): Entry[] =>
      positions
        .map((position) => this.#entries.get(position)!)
        .filter(({ issued, failuresInRow }) => issued === undefined && failuresInRow < FIRST_FAILURES_MAX);
    const endMs = this.#options.clock.monotonicMs() + waitMs;
    // `close` drops all entries, so `missing` must not be asked after it.
    while (this.#entries.size > 0) {
      const waiting = missing();
      const remainingMs = endMs - this.#options.clock.monotonicMs();
      if (waiting.length === 0 || remainingMs <= 0) return;
      await Promise.race([
        delay(Math.min(remainingMs, CHECK_PERIOD_MS)),
        ...waiting.flatMap(({ renewal }) => renewal ?? []),
      ]);
    }
  }

  /** Stops renewing all credentials but these, and drops them after LINGER_MS. Called after a reload. */
  retain(positions: readonly number[]): void {
    const dropMs = this.#options.clock.monotonicMs() + LINGER_MS;
    for (const entry of this.#entries.values())
      if (!positions.includes(entry.position)) entry.dropMs = Math.min(entry.dropMs, dropMs);
  }

  /** Renews a credential early. gateway/upstream-workers.ts calls it if a provider rejects its generation. */
  rejected(position: number, generation: number): void {
    const entry = this.#entries.get(position);
    if (entry?.generation !== generation || entry.isRejected) return;
    const nowMs = this.#options.clock.monotonicMs();
    if (nowMs > entry.rejectedDueMs + REJECTED_CALM_MS) entry.rejectedPauseMs = REJECTED_PAUSE_MS_MIN;
    entry.isRejected = true;
    const fields = { credential: entry.name };
    this.#options.log.warn('a provider rejects a credential; it is renewed early', fields);
    this.renewDue();
  }

  /**
   * Starts the renewals that are due, and drops what the settings no longer name. A timer calls it each
   * CHECK_PERIOD_MS while there are credentials. Public for tests.
   */
  renewDue(): void {
    const { clock, send } = this.#options;
    const nowMs = clock.monotonicMs();
    const checksFiles = nowMs >= this.#filesDueMs;
    if (checksFiles) this.#filesDueMs = nowMs + FILES_CHECK_PERIOD_MS;
    for (const entry of this.#entries.values()) {
      if (nowMs >= entry.dropMs) {
        this.#entries.delete(entry.position);
        send([{ ...recordOf(entry), credential: undefined }]);
        continue;
      }
      // Not before the first failure: a renewal is due earlier than the expiry, and succeeds or fails.
      if (entry.failuresInRow > 0) this.#dropIfExpired(entry);
      if (entry.renewal !== undefined || entry.dropMs !== Infinity) continue;
      const isDue = this.#isReached(entry.due);
      // After a failure a rejection waits for `due` too: the token server may have sent a Retry-After.
      const isRejectedDue =
        entry.isRejected && nowMs >= entry.rejectedDueMs && (isDue || entry.failuresInRow === 0);
      if (isDue || isRejectedDue || (checksFiles && entry.filesState !== filesStateOf(entry.spec)))
        entry.renewal = this.#runRenewal(entry, isRejectedDue).finally(() => (entry.renewal = undefined));
    }
  }

  /** Stops the timer. The results of running renewals are ignored, and workers keep their credentials. */
  close(): void {
    clearTimeout(this.#timer);
    this.#stop.abort();
    this.#entries.clear();
  }

  /** The timer fires with the thread's other timers; `renewDue` goes by `options.clock`, as tests want. */
  #schedule(): void {
    if (this.#timer !== undefined || this.#stop.signal.aborted) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.renewDue();
      if (this.#entries.size > 0) this.#schedule();
    }, msToNextTick(CHECK_PERIOD_MS)).unref();
  }

  async #runRenewal(entry: Entry, isRejectedDue: boolean): Promise<void> {
    const { clock } = this.#options;
    if (isRejectedDue) {
      entry.rejectedDueMs = clock.monotonicMs() + entry.rejectedPauseMs;
      entry.rejectedPauseMs = Math.min(2 * entry.rejectedPauseMs, REJECTED_PAUSE_MS_MAX);
    }
    entry.filesState = filesStateOf(entry.spec);
    try {
      entry.source ??= await this.#open(entry.spec);
      const issued = await credentialWithin(entry.source, RENEWAL_MS_MAX, this.#stop.signal);
      if (this.#isCurrent(entry)) this.#accept(entry, issued);
    } catch (error) {
      if (this.#isCurrent(entry)) this.#fail(entry, credentialErrorOf(error, 'see what the message names'));
    }
  }

  /** False if the credential was dropped, or the keeper closed, while the renewal was running. */
  #isCurrent(entry: Entry): boolean {
    return this.#entries.get(entry.position) === entry;
  }

  #accept(entry: Entry, issued: IssuedCredential): void {
    const { clock, send, log } = this.#options;
    const nowMs = clock.wallMs();
    // NaN means to `trustedLifeMsOf` that the source does not say.
    const claimedMs = (issued.expiresMs ?? NaN) - nowMs;
    const lifeMs = trustedLifeMsOf(claimedMs);
    if (claimedMs <= 0) {
      const fields = { credential: entry.name, expired_seconds_ago: Math.round(-claimedMs / 1_000) };
      const text = 'a new credential has expired already, by what its source says';
      log.warn(`${text}; see the clock of this machine`, fields);
    }
    entry.expires = lifeMs === undefined ? undefined : this.#deadlineIn(lifeMs);
    entry.due = this.#deadlineIn(renewalMsOf(lifeMs, this.#random()));
    entry.renewals += 1;
    if (entry.failuresInRow > 0) log.warn('a credential could be renewed again', { credential: entry.name });
    entry.failuresInRow = 0;
    entry.error = undefined;
    // The same credential is no new generation: metadata servers return one token until it nearly expires.
    if (isDeepStrictEqual(entry.issued?.credential, issued.credential)) return;
    entry.issued = issued;
    entry.generation += 1;
    entry.isRejected = false;
    send([recordOf(entry)]);
  }

  #fail(entry: Entry, { message, advice, retryAfterMs = 0 }: CredentialError): void {
    entry.due = this.#deadlineIn(pauseMsOf(entry.failuresInRow, retryAfterMs, this.#random()));
    entry.failures += 1;
    entry.failuresInRow += 1;
    const isNewError = entry.error !== message;
    entry.error = message;
    const fields = { credential: entry.name, error: message, advice };
    // An expiry is logged with the reason of the failure, so the failure gets no line of its own.
    if (this.#dropIfExpired(entry, fields) || !isNewError) return;
    if (entry.issued === undefined)
      this.#options.log.error('a credential could not be had; calls of its upstreams fail', fields);
    else this.#options.log.warn('a credential could not be renewed; the old one serves meanwhile', fields);
  }

  /** Returns whether it has dropped the credential. */
  #dropIfExpired(entry: Entry, fields = { credential: entry.name, error: entry.error ?? '' }): boolean {
    if (entry.issued === undefined || entry.expires === undefined || !this.#isReached(entry.expires))
      return false;
    entry.issued = undefined;
    entry.expires = undefined;
    entry.generation += 1;
    this.#options.send([recordOf(entry)]);
    this.#options.log.error(
      'a credential has expired and could not be renewed; calls of its upstreams fail',
      fields,
    );
    return true;
  }

  #deadlineIn(ms: number): Deadline {
    const { clock } = this.#options;
    return { wallMs: clock.wallMs() + ms, monotonicMs: clock.monotonicMs() + ms };
  }

  #isReached({ wallMs, monotonicMs }: Deadline): boolean {
    const { clock } = this.#options;
    return clock.wallMs() >= wallMs || clock.monotonicMs() >= monotonicMs;
  }
}

function recordOf({ position, generation, issued }: Entry): CredentialRecord {
  return { position, generation, credential: issued?.credential };
}
