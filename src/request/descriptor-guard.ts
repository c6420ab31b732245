/**
 * Notices that the process has no file descriptor left, and keeps spare ones for that case. connections.ts
 * makes one DescriptorGuard; listener thread.
 *
 * µWebSockets.js cannot accept a connection without a descriptor: the client would wait in the kernel's queue
 * without a response. So the guard keeps spare descriptors on /dev/null and closes them in a shortage. With
 * these, clients are accepted, get a 503 and are disconnected, one after the other, until the guard can open
 * its spares again.
 *
 * Must hold: while `isShort`, no call is admitted (intake.ts) and each response ends its connection
 * (`endsConnections` of connections.ts); otherwise calls use the spare descriptors up, and no client gets a
 * 503 (further test: test/e2e/overload.test.ts).
 */
import { closeSync, openSync } from 'node:fs';
import { msToNextTick } from '../core/clock.js';

/** How many spares are kept, and so how many connections can be rejected at a time, each within 1 ms. */
const SPARES_COUNT = 8;
/** A shortage ends once this many descriptors besides the spares are free, for the next calls. */
const MARGIN_COUNT = 8;
/** How often the guard checks, and so how late it notices a shortage. A check takes some 10 µs. */
const CHECK_PERIOD_MS = 100;
/** While the lowest free descriptor stays the same. Longer, because each check wakes the thread. */
const IDLE_CHECK_PERIOD_MS = 1_000;

export class DescriptorGuard {
  #spares: number[] = [];
  #isShort = false;
  /** The lowest free descriptor at the last check, -1 before. The system gives the lowest first. */
  #lowestFree = -1;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor() {
    this.#checkRegularly();
  }

  get isShort(): boolean {
    return this.#isShort;
  }

  #checkRegularly(): void {
    const formerLowest = this.#lowestFree;
    this.check();
    const isIdle = !this.#isShort && this.#lowestFree === formerLowest;
    this.#timer = setTimeout(
      () => this.#checkRegularly(),
      isIdle ? msToNextTick(IDLE_CHECK_PERIOD_MS) : CHECK_PERIOD_MS,
    );
  }

  /** Checks at once. Does nothing after `close`. */
  check(): void {
    if (this.#isClosed) return;
    // One descriptor beyond the spares shows whether any is left, and which is the lowest.
    const neededCount = SPARES_COUNT - this.#spares.length + (this.#isShort ? MARGIN_COUNT : 1);
    const opened = openUpTo(neededCount);
    this.#isShort = opened.length < neededCount;
    if (this.#isShort) {
      closeAll([...opened, ...this.#spares]);
      this.#spares = [];
      return;
    }
    const spares = opened.splice(0, SPARES_COUNT - this.#spares.length);
    this.#lowestFree = opened[0] ?? -1;
    this.#spares.push(...spares);
    closeAll(opened);
  }

  /** Ends the checks and closes the spares. Idempotent. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    closeAll(this.#spares);
    this.#spares = [];
  }
}

/** Opens `count` descriptors, or fewer if the process or the system has no more. */
function openUpTo(count: number): number[] {
  const opened: number[] = [];
  try {
    while (opened.length < count) opened.push(openSync('/dev/null', 'r'));
  } catch {
    // EMFILE or ENFILE, because nothing else keeps a process from opening /dev/null. `check` counts them.
  }
  return opened;
}

function closeAll(descriptors: readonly number[]): void {
  for (const descriptor of descriptors) closeSync(descriptor);
}
