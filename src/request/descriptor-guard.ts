/**
 * Notices that the process has no file descriptor left, and keeps reserve descriptors for that case.
 * µWebSockets.js (µWS) can't accept a connection without one: the client would wait in the kernel's queue and
 * hear nothing. So spare descriptors are kept open on /dev/null and given up during a shortage: clients are
 * accepted with them, get a 503 and are disconnected, one after the other, until calls have ended and the
 * spare ones can be opened again. Made by Connections; each listener thread has SPARES of its own.
 *
 * Must hold: as long as `isShort`, no call is admitted and each response ends its connection; otherwise the
 * spare descriptors go to calls and nobody gets a 503 (test/e2e/overload.test.ts).
 */
import { closeSync, openSync } from 'node:fs';
import { msToNextTick } from '../core/clock.js';

/** Connections that are rejected at a time; each is gone after a millisecond. */
const SPARES = 8;
/**
 * So many descriptors besides must be free before the shortage is over, or the next call would cause it
 * again.
 */
const MARGIN = 8;
/** How late a shortage may be noticed. A look costs some 10 µs, and wakes an idle thread. */
const LOOK_PERIOD_MS = 100;
/** The same while, as far as the lowest free one shows, nobody in the process opens or closes any. */
const IDLE_LOOK_PERIOD_MS = 1_000;

export class DescriptorGuard {
  #spares: number[] = [];
  #isShort = false;
  /**
   * At the last look. The system gives the lowest first: no change means that hardly any was opened or
   * closed.
   */
  #lowestFree = -1;
  #timer: NodeJS.Timeout | undefined;

  constructor() {
    this.#lookRegularly();
  }

  /** While true no call is admitted, and responses end their connections. */
  get isShort(): boolean {
    return this.#isShort;
  }

  #lookRegularly(): void {
    const before = this.#lowestFree;
    this.look();
    const isAtRest = !this.#isShort && this.#lowestFree === before;
    this.#timer = setTimeout(
      () => this.#lookRegularly(),
      isAtRest ? msToNextTick(performance.now(), IDLE_LOOK_PERIOD_MS) : LOOK_PERIOD_MS,
    );
  }

  /**
   * Also called by Connections, at once, if a file or a socket could not be opened for want of a descriptor.
   */
  look(): void {
    // The one beyond the spares shows whether any is left, and which is the lowest.
    const wanted = SPARES - this.#spares.length + (this.#isShort ? MARGIN : 1);
    const opened = openUpTo(wanted);
    this.#isShort = opened.length < wanted;
    if (this.#isShort) {
      closeAll([...opened, ...this.#spares]);
      this.#spares = [];
      return;
    }
    const spares = opened.splice(0, SPARES - this.#spares.length);
    this.#lowestFree = opened[0] ?? -1;
    this.#spares.push(...spares);
    closeAll(opened);
  }

  close(): void {
    clearTimeout(this.#timer);
    closeAll(this.#spares);
    this.#spares = [];
  }
}

/** `count` descriptors, or fewer if the process or the system has no more. */
function openUpTo(count: number): number[] {
  const opened: number[] = [];
  try {
    while (opened.length < count) opened.push(openSync('/dev/null', 'r'));
  } catch {
    // EMFILE or ENFILE: nothing else keeps a process from opening /dev/null.
  }
  return opened;
}

function closeAll(descriptors: readonly number[]): void {
  for (const descriptor of descriptors) closeSync(descriptor);
}
