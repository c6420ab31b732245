/**
 * Notices that the process has no file descriptor left, and keeps a few back for that time. Listener thread.
 *
 * µWS cannot accept a connection without a descriptor: the caller waits in the kernel's queue and hears nothing. So some are kept
 * open on /dev/null and are given up when there is no other: callers are accepted with them, told 503 and disconnected, one
 * after the other, until calls have ended and the spare ones can be opened again.
 */
import { closeSync, openSync } from 'node:fs';
import { msToNextTick } from '../core/clock.js';

/** Connections that are refused at a time; each is gone after a millisecond. */
const SPARES = 8;
/** Must be free besides, before the shortage is over, so that the next call does not bring it back. */
const MARGIN = 8;
/** How late a shortage may be noticed. A look costs some 10 µs, and wakes a thread that has nothing else to do. */
const LOOK_PERIOD_MS = 100;
/** The same while nobody in the process opens or closes anything. */
const IDLE_LOOK_PERIOD_MS = 500;

export class DescriptorGuard {
  #spares: number[] = [];
  #isShort = false;
  /** The lowest that was free at the last look. The system gives the lowest first, so another one means that some were opened or closed. */
  #lowestFree = -1;
  #timer: NodeJS.Timeout | undefined;

  constructor() {
    this.#lookRegularly();
  }

  /** While true no call is begun, and answers end their connections. */
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

  /** Looks now: somebody has failed to get a descriptor. */
  look(): void {
    const wanted = SPARES - this.#spares.length + (this.#isShort ? MARGIN : 1);
    const opened = openSome(wanted);
    this.#isShort = opened.length < wanted;
    if (this.#isShort) {
      closeAll([...opened, ...this.#spares]);
      this.#spares = [];
      return;
    }
    const kept = opened.splice(0, SPARES - this.#spares.length);
    this.#lowestFree = opened[0] ?? -1;
    this.#spares.push(...kept);
    closeAll(opened);
  }

  close(): void {
    clearTimeout(this.#timer);
    closeAll(this.#spares);
    this.#spares = [];
  }
}

/** `count` descriptors, or fewer where the process or the system has no more. */
function openSome(count: number): number[] {
  const opened: number[] = [];
  try {
    while (opened.length < count) opened.push(openSync('/dev/null', 'r'));
  } catch {
    // EMFILE or ENFILE.
  }
  return opened;
}

function closeAll(descriptors: readonly number[]): void {
  for (const descriptor of descriptors) closeSync(descriptor);
}
