/**
 * What the mock saw, for assertions: counters since the start or the last reset. Thread of the mock.
 */

export interface MockStats {
  /** Chat requests, counted when their headers came. */
  requests: number;
  /** Chat requests that are not finished. */
  open: number;
  /** Chat requests whose client left before the response was through. */
  aborted: number;
  /** Wall time of the last such leaving, in ms since 1970; null before the first. */
  lastAbortMs: number | null;
  /** Bytes of responses handed to the socket. */
  sentBytes: number;
  /** The last chat request; null before the first, and without `--record`. */
  last: { headers: Record<string, string>; body: string } | null;
}

export function createMockStats(): MockStats {
  return { requests: 0, open: 0, aborted: 0, lastAbortMs: null, sentBytes: 0, last: null };
}

/** Sets the counters to zero; `open` is a state and stays. */
export function resetMockStats(stats: MockStats): void {
  Object.assign(stats, { ...createMockStats(), open: stats.open });
}
