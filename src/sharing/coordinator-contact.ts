/**
 * Records whether the coordinator replies, and when to try again if it did not. lease-manager.ts and
 * equal-share.ts have one contact each, and record in it how their exchanges ended. Main thread. All times
 * are monotonic. A _loss_ lasts from an exchange without a reply, or with an error as reply, to the next good
 * reply.
 *
 * Must hold: the pause before the next try is 0.75 s at most, or 3 s in a quarantine
 * (test/unit/sharing/coordinator-contact.test.ts).
 */
import { addValue, emptyHistogram, type HistogramSnapshot } from '../telemetry/histogram.js';
import { EXCHANGE_BOUNDS_MS } from '../telemetry/metrics-source.js';
import { CoordinatorLost, type LossReason } from './coordinator.js';

/** The pause after a failure doubles from MIN to MAX. A random factor keeps nodes from trying all at once. */
const RETRY_MS_MIN = 100;
/**
 * With this pause each contact tries twice a second on average. A process has up to four (LeaseManager, and
 * the nodes of calls, of debits and of fallback quotas), so a thousand processes ask 8,000 times a second,
 * while the coordinator has nothing else to do.
 */
const RETRY_MS_MAX = 500;
/** The longest pause in a quarantine, which takes a minute or more: frequent tries would not help. */
const RETRY_MS_QUARANTINE = 2_000;
/** While a loss is shorter, another server may be taking over: requests without a lease wait for its end. */
const BRIEF_MS = 2_000;

/** For status and metrics. */
export interface ContactState {
  /** Undefined while the coordinator replies. */
  readonly lost:
    | {
        readonly reason: LossReason;
        readonly message: string;
        readonly sinceMs: number;
        /** When something may be granted again; undefined if that is not known. */
        readonly untilMs: number | undefined;
      }
    | undefined;
  /** How long exchanges with a reply took. */
  readonly exchanges: HistogramSnapshot;
  /** How many exchanges got no reply, or an error as reply. Each try during a loss counts. */
  readonly failures: number;
  /** When the last reply came; 0 before the first. */
  readonly repliedMs: number;
}

export class CoordinatorContact {
  readonly #random: () => number;
  #lost: ContactState['lost'];
  readonly #exchanges = emptyHistogram(EXCHANGE_BOUNDS_MS);
  #failures = 0;
  #repliedMs = 0;
  /** How many failures there were since the last reply, or since `endPause`: they set the next pause. */
  #failuresInRow = 0;
  /** When the pause after the last failure ends; 0 before the first failure, and after `endPause`. */
  #pauseEndMs = 0;

  constructor(random: () => number) {
    this.#random = random;
  }

  get state(): ContactState {
    return {
      lost: this.#lost,
      exchanges: this.#exchanges,
      failures: this.#failures,
      repliedMs: this.#repliedMs,
    };
  }

  get isLost(): boolean {
    return this.#lost !== undefined;
  }

  /** Whether a loss has lasted for BRIEF_MS, or is a quarantine: then requests do not wait for its end. */
  isLostForLong(nowMs: number): boolean {
    if (this.#lost === undefined) return false;
    return this.#lost.reason === 'quarantine' || nowMs - this.#lost.sinceMs >= BRIEF_MS;
  }

  /** How long the pause after a failure still lasts, in ms; 0 if none runs. */
  pauseMs(nowMs: number): number {
    return Math.max(0, this.#pauseEndMs - nowMs);
  }

  mayTry(nowMs: number): boolean {
    return this.pauseMs(nowMs) === 0;
  }

  /** Ends the pause, and makes the next one the shortest. Called when the coordinator may be there again. */
  endPause(): void {
    this.#failuresInRow = 0;
    this.#pauseEndMs = 0;
  }

  /** Records a reply, which ends the loss. A pause goes on: not every exchange asks `mayTry` before. */
  recordReply(sentMs: number, nowMs: number): void {
    this.#lost = undefined;
    this.#failuresInRow = 0;
    addValue(this.#exchanges, nowMs - sentMs);
    this.#repliedMs = nowMs;
  }

  /** Records a failure: begins a loss, or gives the present loss a new reason. Begins a pause. */
  recordFailure(error: unknown, nowMs: number): void {
    // Of another error the text begins with its class, because it is a bug, and not said for operators.
    const { reason, waitMs, message } =
      error instanceof CoordinatorLost
        ? error
        : ({ reason: 'failing', waitMs: undefined, message: String(error) } as const);
    const untilMs = waitMs === undefined ? undefined : nowMs + waitMs;
    this.#lost = { reason, message, sinceMs: this.#lost?.sinceMs ?? nowMs, untilMs };
    this.#failures += 1;
    // The check for lost data is over as soon as the last node has asked, so pauses begin with the shortest.
    if (reason === 'checking') this.#failuresInRow = 0;
    const longestMs = reason === 'quarantine' ? RETRY_MS_QUARANTINE : RETRY_MS_MAX;
    const pauseMs = Math.min(longestMs, RETRY_MS_MIN * 2 ** this.#failuresInRow);
    this.#failuresInRow += 1;
    this.#pauseEndMs = nowMs + pauseMs * (0.5 + this.#random());
  }
}
