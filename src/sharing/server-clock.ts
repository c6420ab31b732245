/**
 * Estimates what the clock of the server of sharing shows, from its time in the last exchange that was
 * carried out. valkey-partition.ts has a ServerClock for each partition: it tells the server the least time
 * that a former server can have shown, and learns whether the server's clock was set forward. Pure; main
 * thread.
 *
 * Must hold: `leastAt` is never more than the server's clock can show while it only drifts; otherwise a
 * server that took over would count permits as expired that are not. A clock that only drifts counts as not
 * set forward; otherwise nothing is granted for a minute for no reason.
 */

/** By which part of a time two clocks may drift apart in it: each by half a thousandth. */
const CLOCK_DRIFT = 0.001;
/** If two clocks differ by more than their drift and this, the server's was set. */
const CLOCK_STEP_MS_MIN = 100;
/**
 * The greatest age at which a reading of the server's clock is used. A server that was away for longer gets
 * no estimate of the former clock, and so its check ends as if data were lost (valkey-marks.ts).
 */
const CLOCK_ESTIMATE_MS_MAX = 600_000;

/** The server's clock showed `serverMs` at some moment of a round trip. The other two times are monotonic. */
interface ClockReading {
  readonly serverMs: number;
  readonly sentMs: number;
  readonly receivedMs: number;
}

/** Estimates what the server's clock shows, from its time in the last exchange that was carried out. */
export class ServerClock {
  #reading: ClockReading | undefined;

  record(reading: ClockReading): void {
    this.#reading = reading;
  }

  /** Called after a loss of data: then the server's clock may go on from another time. */
  forget(): void {
    this.#reading = undefined;
  }

  /** The least that the server's clock can show at `monotonicMs`, whatever the drift; 0 if not known. */
  leastAt(monotonicMs: number): number {
    const { serverMs = 0, receivedMs = -Infinity } = this.#reading ?? {};
    const sinceMs = monotonicMs - receivedMs;
    return sinceMs < CLOCK_ESTIMATE_MS_MAX ? Math.floor(serverMs + sinceMs * (1 - CLOCK_DRIFT)) : 0;
  }

  /**
   * Whether the clock was set forward since the reading on record, by this one. False if there is none, or
   * one that is too old for `leastAt`.
   */
  wasSetForward({ serverMs, sentMs, receivedMs }: ClockReading): boolean {
    if (this.#reading === undefined) return false;
    const sinceMs = sentMs - this.#reading.receivedMs;
    if (sinceMs >= CLOCK_ESTIMATE_MS_MAX) return false;
    // `leastAt` took this off. The clocks may have drifted as far the other way.
    const driftMs = 2 * CLOCK_DRIFT * sinceMs;
    // So much may have passed since the least time: the clock was read at some moment of each round trip.
    const passedMs = receivedMs - sentMs + this.#reading.receivedMs - this.#reading.sentMs;
    return serverMs - this.leastAt(sentMs) > passedMs + driftMs + CLOCK_STEP_MS_MIN;
  }
}
