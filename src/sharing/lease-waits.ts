/**
 * The requests of this process that wait for leases, and when each of them has waited long enough. Main thread.
 */
import type { LeaseEnd, LeaseNeed } from '../channel/lease-channel.js';
import { type Lack, type LeasedScope, worse } from './leased-scope.js';

/*
 * A request that waits for a lease. Main thread.
 */

export interface Wait {
  readonly need: LeaseNeed;
  readonly sinceMs: number;
  /** The account, and the key where it has limits of its own. */
  readonly scopes: readonly LeasedScope[];
  /** Then it is refused, whatever others may give back. */
  readonly deadlineMs: number;
  readonly end: (end: LeaseEnd) => void;
}

/** A request waits so long for what others may give back: it lies idle for 750 ms at the most, see idle-floor. */
const WAIT_MS_MAX = 1_500;
/** Requests that wait in this process; a thousandth of a gigabyte. What comes beyond is refused for the moment. */
const WAITS_MAX = 20_000;
/** Of one scope so many may wait for what others give back; an account that is hammered beyond its limit needs no more. */
const DENIED_WAITS_MAX = 64;

export interface LeaseWaitsOptions {
  readonly nowMs: () => number;
  /** By the coordinator's calendar. */
  readonly dayNumber: () => number;
  /** Whether the coordinator is. */
  readonly isLost: () => boolean;
  /** The scope is to be in the next exchange. */
  readonly ask: (scope: LeasedScope) => void;
}

export class LeaseWaits {
  readonly #options: LeaseWaitsOptions;
  readonly #waits = new Set<Wait>();
  /** What was had is promised to one request at a time until the next answer. */
  #round = 0;

  constructor(options: LeaseWaitsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#waits.size;
  }

  /** What the request needs of the scopes is here, or not to be had. Never rejects. */
  add(need: LeaseNeed, scopes: readonly LeasedScope[]): Promise<LeaseEnd> {
    if (this.#waits.size >= WAITS_MAX) return Promise.resolve('lost');
    return new Promise((end) => {
      const sinceMs = this.#options.nowMs();
      const wait: Wait = { need, sinceMs, scopes, deadlineMs: sinceMs + WAIT_MS_MAX, end };
      this.#waits.add(wait);
      for (const scope of scopes) scope.waits.add(wait);
      this.#round += 1;
      this.#reply(wait, new Map());
    });
  }

  /** The coordinator has answered for these. */
  answered(scopes: readonly LeasedScope[]): void {
    this.#round += 1;
    const denied = new Map<LeasedScope, number>();
    for (const scope of scopes) for (const wait of scope.waits) this.#reply(wait, denied);
  }

  /** The coordinator has not answered. */
  lost(): void {
    this.#round += 1;
    for (const wait of this.#waits) this.#reply(wait, new Map());
  }

  /** Who still waits is asked for again. */
  onTime(): void {
    const nowMs = this.#options.nowMs();
    for (const wait of this.#waits) {
      if (nowMs >= wait.deadlineMs) this.#refuse(wait, nowMs);
      else for (const scope of wait.scopes) this.#options.ask(scope);
    }
  }

  close(): void {
    for (const wait of this.#waits) this.#end(wait, 'lost');
  }

  /** Ends the wait where it is decided, else sees to it that it will be. */
  #reply(wait: Wait, denied: Map<LeasedScope, number>): void {
    const { nowMs: now, dayNumber, isLost, ask } = this.#options;
    const nowMs = now();
    let lack: Lack = 'nothing';
    for (const scope of wait.scopes) {
      lack = worse(lack, scope.promise(wait, this.#round, dayNumber(), nowMs));
    }
    if (lack === 'nothing') {
      this.#end(wait, 'try');
    } else if (lack === 'refused') {
      this.#refuse(wait, nowMs);
    } else if (isLost() || (lack === 'denied' && wait.scopes.some(({ isUnknown }) => isUnknown))) {
      this.#end(wait, 'lost');
    } else if (lack === 'unasked') {
      for (const scope of wait.scopes) ask(scope);
    } else {
      const first = wait.scopes[0]!;
      const before = denied.get(first) ?? 0;
      denied.set(first, before + 1);
      if (before >= DENIED_WAITS_MAX || nowMs >= wait.deadlineMs) this.#refuse(wait, nowMs);
    }
  }

  #refuse(wait: Wait, nowMs: number): void {
    for (const scope of wait.scopes) {
      scope.refuse(wait.need, nowMs);
      // What it gave back is for others, who may be waiting.
      this.#options.ask(scope);
    }
    this.#end(wait, 'refused');
  }

  #end(wait: Wait, end: LeaseEnd): void {
    this.#waits.delete(wait);
    for (const scope of wait.scopes) scope.waits.delete(wait);
    wait.end(end);
  }
}
