/**
 * A timer for what a message of another process, or its exit, makes needless: a kill, the return of the admin
 * interface, the end of a reading of the settings. Runs in the supervisor process.
 *
 * Must hold: a message that came before the time was over counts, also if this process was stopped then. Its
 * pipe is read after timers run, so `act` waits for one more event-loop turn
 * (test/unit/supervisor/supervisor.test.ts).
 */

/** Calls `act` after `waitMs`, or not at all if the returned function is called before. */
export function callLater(waitMs: number, act: () => void): () => void {
  let isCancelled = false;
  const timer = setTimeout(() => {
    setImmediate(() => {
      if (!isCancelled) act();
    });
  }, waitMs);
  return () => {
    isCancelled = true;
    clearTimeout(timer);
  };
}
