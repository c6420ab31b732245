/**
 * Renews the credentials that expire (OAuth tokens, AWS session keys), ahead of time and off the calls' path,
 * once for all threads of a process. gateway.ts owns it, on the main thread.
 *
 *     missing ── renewal ──► good ── it expires ──► calls fail until a renewal succeeds
 *                  ▲          │ due (renewal-schedule.ts), rejected by the provider, or a file changed
 *                  └──────────┘
 *
 * While renewals fail, the old credential serves until it expires.
 *
 * Must hold: a credential has one renewal at a time; `revision` rises with every change, so that workers
 * ignore older records; records with secrets go to upstream workers alone, never to listeners or logs
 * (test/unit/providers/credentials/credential-keeper.test.ts).
 */
import { statSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { msToNextTick, type Clock } from '../../core/clock.js';
import {
  type CredentialError,
  credentialErrorOf,
  type CredentialSource,
  filesOf,
  type Grant,
  grantWithin,
  openSource,
} from './credential-source.js';
import { believedMsOf, pauseMsOf, renewalMsOf } from './renewal-schedule.js';
import { nameOfSpec, type CredentialRecord, type CredentialSpec } from './credential-spec.js';

const MINUTE_MS = 60_000;
/** So long because the provider chain of AWS asks several places in turn. */
const RENEWAL_MS_MAX = 30_000;
/**
 * Pause between renewals after rejections by a provider: a missing permission looks like a bad credential.
 */
const REJECTED_PAUSE_MS_MIN = 30_000;
const REJECTED_PAUSE_MS_MAX = 10 * MINUTE_MS;
/** A rejection so long after the one before starts with the shortest pause again. */
const REJECTED_CALM_MS = 60 * MINUTE_MS;
const CHECK_PERIOD_MS = 1_000;
const FILES_CHECK_PERIOD_MS = 10_000;
/**
 * How long a credential that the settings no longer name is kept: calls from before a reload may still wait.
 */
const LINGER_MS = 2 * MINUTE_MS;
/** `want` stops waiting after so many failures of each missing credential. */
const FIRST_FAILURES_MAX = 3;
/** The part of the event log that is used here. */
export interface KeeperLog {
  error(message: string, fields?: Readonly<Record<string, string | number>>): void;
  warn(message: string, fields?: Readonly<Record<string, string | number>>): void;
}

export interface KeeperOptions {
  readonly specOf: (position: number) => CredentialSpec;
  /** Sends to all workers. A worker that starts later gets `current`. */
  readonly send: (records: readonly CredentialRecord[]) => void;
  readonly clock: Clock;
  readonly log: KeeperLog;
  /** Uniform in [0, 1), for jitter. */
  readonly random?: () => number;
  readonly open?: (spec: CredentialSpec) => Promise<CredentialSource>;
}

/** For operators. */
export interface CredentialStatus {
  /** As nameOfSpec. */
  readonly name: string;
  /** Whether there is a credential for calls. */
  readonly ok: boolean;
  /** Unix milliseconds; undefined if there is no credential, or it does not expire. */
  readonly expiresMs: number | undefined;
  readonly renewals: number;
  readonly failures: number;
  /** Why the last renewal failed; undefined after a success. */
  readonly error: string | undefined;
}

/**
 * A deadline by two clocks, reached when either is: the wall clock may be set, the other stops in a suspend.
 */
interface Moment {
  readonly wallMs: number;
  readonly monotonicMs: number;
}

interface Kept {
  readonly position: number;
  readonly spec: CredentialSpec;
  readonly name: string;
  source: CredentialSource | undefined;
  revision: number;
  grant: Grant | undefined;
  /** When the credential expires; undefined if that is unknown. */
  expires: Moment | undefined;
  due: Moment;
  renewal: Promise<void> | undefined;
  renewals: number;
  failures: number;
  failuresInRow: number;
  error: string | undefined;
  /** A provider has rejected the present credential. */
  isRejected: boolean;
  /** No renewal for a rejection before this; monotonic. */
  rejectedDueMs: number;
  rejectedPauseMs: number;
  /** Stamp of the files that the credential is made of, as of the last renewal. */
  files: string;
  /** When the credential is dropped, by the monotonic clock; Infinity while the settings name it. */
  forgottenMs: number;
}

export class CredentialKeeper {
  readonly #options: KeeperOptions;
  readonly #open: (spec: CredentialSpec) => Promise<CredentialSource>;
  readonly #random: () => number;
  /** By position. */
  readonly #kept = new Map<number, Kept>();
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #filesDueMs = -Infinity;

  constructor(options: KeeperOptions) {
    this.#options = options;
    this.#open = options.open ?? openSource;
    this.#random = options.random ?? Math.random;
  }

  /** The records of all credentials that there are, for a worker that starts. */
  get current(): CredentialRecord[] {
    return [...this.#kept.values()].filter(({ grant }) => grant !== undefined).map(recordOf);
  }

  /** Status of each credential that the settings name. */
  get statuses(): CredentialStatus[] {
    return [...this.#kept.values()]
      .filter(({ forgottenMs }) => forgottenMs === Infinity)
      .map(({ name, grant, expires, renewals, failures, error }) => ({
        name,
        ok: grant !== undefined,
        expiresMs: grant === undefined ? undefined : expires?.wallMs,
        renewals,
        failures,
        error,
      }));
  }

  /**
   * Gets the credentials at these positions that are missing. Resolves when all are there, or after
   * FIRST_FAILURES_MAX failures of each missing one, or after `waitMs`. Never rejects.
   */
  async want(positions: readonly number[], waitMs: number): Promise<void> {
    for (const position of new Set(positions)) {
      const kept = this.#kept.get(position);
      if (kept === undefined) this.#kept.set(position, this.#newKept(position));
      else kept.forgottenMs = Infinity;
    }
    if (this.#kept.size === 0) return;
    this.look();
    this.#schedule();
    const missing = (): Kept[] =>
      positions
        .map((position) => this.#kept.get(position)!)
        .filter(({ grant, failuresInRow }) => grant === undefined && failuresInRow < FIRST_FAILURES_MAX);
    const endMs = this.#options.clock.monotonicMs() + waitMs;
    for (;;) {
      const waiting = missing();
      const leftMs = endMs - this.#options.clock.monotonicMs();
      if (waiting.length === 0 || leftMs <= 0 || this.#stop.signal.aborted) return;
      await Promise.race([
        delay(Math.min(leftMs, CHECK_PERIOD_MS)),
        ...waiting.flatMap(({ renewal }) => renewal ?? []),
      ]);
    }
  }

  /** Stops renewing all others, and drops them after LINGER_MS. */
  retain(positions: readonly number[]): void {
    const forgottenMs = this.#options.clock.monotonicMs() + LINGER_MS;
    for (const kept of this.#kept.values())
      if (!positions.includes(kept.position)) kept.forgottenMs = Math.min(kept.forgottenMs, forgottenMs);
  }

  /** Call when a provider rejects that revision. Renews early, with growing pauses. */
  rejected(position: number, revision: number): void {
    const kept = this.#kept.get(position);
    if (kept?.revision !== revision || kept.isRejected) return;
    const nowMs = this.#options.clock.monotonicMs();
    if (nowMs > kept.rejectedDueMs + REJECTED_CALM_MS) kept.rejectedPauseMs = REJECTED_PAUSE_MS_MIN;
    kept.isRejected = true;
    this.#options.log.warn('a provider rejects a credential; it is renewed early', { credential: kept.name });
    this.look();
  }

  /** Starts the renewals that are due. A timer calls it each CHECK_PERIOD_MS while there are credentials. */
  look(): void {
    const { clock, send } = this.#options;
    const nowMs = clock.monotonicMs();
    const looksAtFiles = nowMs >= this.#filesDueMs;
    if (looksAtFiles) this.#filesDueMs = nowMs + FILES_CHECK_PERIOD_MS;
    for (const kept of this.#kept.values()) {
      if (nowMs >= kept.forgottenMs) {
        this.#kept.delete(kept.position);
        send([{ ...recordOf(kept), credential: undefined }]);
        continue;
      }
      if (kept.failuresInRow > 0) this.#dropIfExpired(kept);
      if (kept.renewal !== undefined || kept.forgottenMs !== Infinity) continue;
      const isRejectedDue = kept.isRejected && nowMs >= kept.rejectedDueMs;
      if (
        this.#isReached(kept.due) ||
        isRejectedDue ||
        (looksAtFiles && kept.files !== filesStampOf(kept.spec))
      )
        kept.renewal = this.#renew(kept, isRejectedDue).finally(() => (kept.renewal = undefined));
    }
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#stop.abort();
    this.#kept.clear();
  }

  #newKept(position: number): Kept {
    const spec = this.#options.specOf(position);
    return {
      position,
      spec,
      name: nameOfSpec(spec),
      source: undefined,
      revision: 0,
      grant: undefined,
      expires: undefined,
      due: { wallMs: Infinity, monotonicMs: -Infinity },
      renewal: undefined,
      renewals: 0,
      failures: 0,
      failuresInRow: 0,
      error: undefined,
      isRejected: false,
      rejectedDueMs: -Infinity,
      rejectedPauseMs: REJECTED_PAUSE_MS_MIN,
      files: '',
      forgottenMs: Infinity,
    };
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#stop.signal.aborted) return;
    const { clock } = this.#options;
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        this.look();
        if (this.#kept.size > 0) this.#schedule();
      },
      msToNextTick(clock.monotonicMs(), CHECK_PERIOD_MS),
    ).unref();
  }

  async #renew(kept: Kept, isRejectedDue: boolean): Promise<void> {
    const { clock } = this.#options;
    if (isRejectedDue) {
      kept.rejectedDueMs = clock.monotonicMs() + kept.rejectedPauseMs;
      kept.rejectedPauseMs = Math.min(2 * kept.rejectedPauseMs, REJECTED_PAUSE_MS_MAX);
    }
    kept.files = filesStampOf(kept.spec);
    try {
      kept.source ??= await this.#open(kept.spec);
      this.#take(kept, await grantWithin(kept.source, RENEWAL_MS_MAX, this.#stop.signal));
    } catch (error) {
      if (!this.#stop.signal.aborted)
        this.#failed(kept, credentialErrorOf(error, 'see what the message names'));
    }
  }

  #take(kept: Kept, grant: Grant): void {
    const { clock, send, log } = this.#options;
    const nowMs = clock.wallMs();
    const claimedMs = (grant.expiresMs ?? NaN) - nowMs;
    const lifeMs = believedMsOf(claimedMs);
    if (claimedMs <= 0)
      log.warn(
        'a new credential has expired already, by what its source says; see the clock of this machine',
        {
          credential: kept.name,
          expired_seconds_ago: Math.round(-claimedMs / 1_000),
        },
      );
    kept.expires = lifeMs === undefined ? undefined : this.#in(lifeMs);
    kept.due = this.#in(renewalMsOf(lifeMs, this.#random()));
    kept.renewals += 1;
    if (kept.failuresInRow > 0) log.warn('a credential could be renewed again', { credential: kept.name });
    kept.failuresInRow = 0;
    kept.error = undefined;
    // A metadata server returns the same token until shortly before that expires.
    if (isDeepStrictEqual(kept.grant?.credential, grant.credential)) return;
    kept.grant = grant;
    kept.revision += 1;
    kept.isRejected = false;
    send([recordOf(kept)]);
  }

  #failed(kept: Kept, { message, advice, retryAfterMs = 0 }: CredentialError): void {
    kept.due = this.#in(pauseMsOf(kept.failuresInRow, retryAfterMs, this.#random()));
    kept.failures += 1;
    kept.failuresInRow += 1;
    const isNews = kept.error !== message;
    kept.error = message;
    this.#dropIfExpired(kept);
    if (!isNews) return;
    const fields = { credential: kept.name, error: message, advice };
    if (kept.grant === undefined)
      this.#options.log.error('a credential could not be had; calls of its upstreams fail', fields);
    else this.#options.log.warn('a credential could not be renewed; the old one serves meanwhile', fields);
  }

  #dropIfExpired(kept: Kept): void {
    if (kept.grant === undefined || kept.expires === undefined || !this.#isReached(kept.expires)) return;
    kept.grant = undefined;
    kept.expires = undefined;
    kept.revision += 1;
    this.#options.send([recordOf(kept)]);
    this.#options.log.error(
      'a credential has expired and could not be renewed; calls of its upstreams fail',
      {
        credential: kept.name,
        error: kept.error ?? '',
      },
    );
  }

  #in(ms: number): Moment {
    const { clock } = this.#options;
    return { wallMs: clock.wallMs() + ms, monotonicMs: clock.monotonicMs() + ms };
  }

  #isReached({ wallMs, monotonicMs }: Moment): boolean {
    const { clock } = this.#options;
    return clock.wallMs() >= wallMs || clock.monotonicMs() >= monotonicMs;
  }
}

function recordOf({ position, revision, grant }: Kept): CredentialRecord {
  return { position, revision, credential: grant?.credential };
}

/** A text that changes whenever one of the credential's files does. */
function filesStampOf(spec: CredentialSpec): string {
  return filesOf(spec)
    .map((file) => {
      const stats = statSync(file, { throwIfNoEntry: false });
      return stats === undefined ? '-' : `${stats.ino}:${stats.size}:${stats.mtimeMs}`;
    })
    .join(' ');
}
