/**
 * What the paced client is told and what it tells. Both ends import this file.
 */

/** The client's last line of standard output is its report, as JSON; its order is the only argument. */
export interface PacedOrder {
  readonly port: number;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Keys that the calls go round by, a line each; absent: the headers name the only one. */
  readonly keysFile?: string;
  readonly ratePerSecond: number;
  readonly seconds: number;
  /** A call that finds them all busy waits, and its time counts from when it was due. */
  readonly connectionsMax: number;
}

export interface Percentiles {
  readonly p50: number;
  readonly p99: number;
  readonly highest: number;
}

export interface PacedReport {
  readonly answers: number;
  readonly failures: number;
  /** The first reason of failure. */
  readonly failure?: string;
  readonly statuses: Readonly<Record<string, number>>;
  readonly seconds: number;
  /** From when the call was due to the first text of the response, in µs. */
  readonly firstMicros: Percentiles;
  /** … to its end. */
  readonly wholeMicros: Percentiles;
}

export function percentilesOf(micros: Float64Array): Percentiles {
  const sorted = micros.slice().sort();
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return { p50: at(0.5), p99: at(0.99), highest: sorted.at(-1) ?? 0 };
}

export interface SlowOrder extends Pick<PacedOrder, 'port' | 'path' | 'headers' | 'body'> {
  readonly streams: number;
  readonly openedPerSecond: number;
  /** Of one stream, and the pause between two. */
  readonly chunks: number;
  readonly chunkMs: number;
}

export interface SlowReport {
  /** Streams that came whole, and that did not. */
  readonly served: number;
  readonly cut: number;
  /** Most that were open at once. */
  readonly openMax: number;
  /** By how much the pauses between two chunks were longer than they should be, in µs. */
  readonly lateMicros: Percentiles;
  readonly failure?: string;
}
