/**
 * A turn of the event loop in which next to nothing happened. Listener thread.
 *
 * Closing a listening socket resets the connections that the kernel has made and nobody has accepted (SO_REUSEPORT gives each
 * socket a queue of its own). µWS accepts all there are whenever the sockets are looked at, so what is lost are connections
 * made between that look and the close. After a quiet turn these are microseconds. To have none lost at all the kernel must
 * hand them to another listener: `net.ipv4.tcp_migrate_req=1`, Linux 5.14 and later.
 */

/** A turn without work takes some 10 µs, one with a request some 100. */
const QUIET_MS_MAX = 0.05;
/** A listener that never rests is not waited for: some 100 ms. */
const TURNS_MAX = 1_000;

/** Calls back once, right after the sockets were looked at, in a later turn. */
export function onQuietTurn(then: () => void): void {
  let turns = 0;
  let beforeMs = -Infinity;
  const look = (): void => {
    const nowMs = performance.now();
    if (nowMs - beforeMs <= QUIET_MS_MAX || turns >= TURNS_MAX) {
      then();
      return;
    }
    turns += 1;
    beforeMs = nowMs;
    setImmediate(look);
  };
  setImmediate(look);
}
