/**
 * The queue of a worker's calls that wait for room in the limits of their upstreams: fair queueing by account
 * (core/fair-queue.ts), so that one with many calls delays only itself. Sessions enter it, upstream-quotas.ts
 * owns it. Upstream worker.
 *
 * Room also comes from other threads, processes and hosts, and by time alone. So while anybody waits, the
 * queue looks again every LOOK_MS, and at once when this worker gives something back.
 *
 * Must hold: a call that comes later does not overtake: newcomers pass over what somebody waits for
 * (`isAwaited`). Each call leaves by `tryNow`, `giveUp` or `remove`; number and bytes are bounded
 * (test/unit/upstream/quota-queue.test.ts).
 */
import type { Clock } from '../core/clock.js';
import { FairQueue } from '../core/fair-queue.js';
import { UPSTREAM_QUEUE_BYTES_MAX, UPSTREAM_QUEUE_CALL_BYTES } from '../core/limits.js';
import type { AccountIndex, UpstreamScopeIndex } from '../core/units.js';

/** A look walks over all calls that wait, and again for each that it serves. */
const LOOK_MS = 20;

/** A call that waits. Once `tryNow` has returned true or `giveUp` was called, it is not here any more. */
export interface WaitingCall {
  readonly account: AccountIndex;
  /** Of its body. */
  readonly bytes: number;
  /** Whether it has waited for as long as it may. */
  isLate(nowMs: number): boolean;
  /** The scopes any of which may serve it; they may change at a reload. */
  waitsFor(): readonly UpstreamScopeIndex[];
  /** Takes an upstream. False if none has room. Like `giveUp`, it must not change the queue. */
  tryNow(): boolean;
  /**
   * Its time is over, the queue has no place for it, or an account with less in the queue needs its place.
   */
  giveUp(): void;
}

export class QuotaQueue {
  readonly #clock: Clock;
  readonly #calls = new FairQueue<AccountIndex, WaitingCall>({
    weightMax: UPSTREAM_QUEUE_BYTES_MAX,
    ownerWeightMax: UPSTREAM_QUEUE_BYTES_MAX,
  });
  /** What calls wait for; until the next look perhaps more, when a call has left. */
  readonly #awaited = new Set<UpstreamScopeIndex>();
  #timer: NodeJS.Timeout | undefined;
  #lookIsDue = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#calls.size;
  }

  /** Whether a call waits for that scope. */
  isAwaited(scope: UpstreamScopeIndex): boolean {
    return this.#awaited.has(scope);
  }

  /** The call waits from now on. If the queue has no place for it, it is given up before the return. */
  add(call: WaitingCall): void {
    const dropped = this.#calls.offer(call.account, call, weightOf(call));
    for (const scope of call.waitsFor()) this.#awaited.add(scope);
    for (const other of dropped) other.giveUp();
    if (this.#calls.size > 0) this.#keepTime();
    else this.#awaited.clear();
  }

  /** The call waits no longer: its client has left. */
  remove(call: WaitingCall): void {
    this.#calls.remove(call.account, call);
    if (this.#calls.size === 0) this.#awaited.clear();
  }

  /** Something was given back: looks at the end of the event-loop turn. */
  roomCame(): void {
    if (this.#lookIsDue || this.#calls.size === 0) return;
    this.#lookIsDue = true;
    setImmediate(() => {
      this.#lookIsDue = false;
      this.look();
    });
  }

  /**
   * Gives the calls whose time is over a last try, and gives them up; then serves those whose turn it is, as
   * far as there is room.
   */
  look(): void {
    this.#giveUpLate();
    while (this.#serveOne());
    this.#awaited.clear();
    for (const [, call] of this.#calls.inTurn())
      for (const scope of call.waitsFor()) this.#awaited.add(scope);
    if (this.#calls.size > 0) this.#keepTime();
  }

  /** A call without room keeps those behind it from what it waits for. */
  #serveOne(): boolean {
    const blocked = new Set<UpstreamScopeIndex>();
    for (const [account, call] of this.#calls.inTurn()) {
      const scopes = call.waitsFor();
      if (scopes.length > 0 && scopes.every((scope) => blocked.has(scope))) continue;
      if (call.tryNow()) {
        this.#calls.serve(account, call);
        return true;
      }
      for (const scope of scopes) blocked.add(scope);
      if (blocked.size === this.#awaited.size) return false;
    }
    return false;
  }

  #giveUpLate(): void {
    const nowMs = this.#clock.monotonicMs();
    const late = [...this.#calls.inTurn()].filter(([, call]) => call.isLate(nowMs));
    for (const [account, call] of late) {
      this.#calls.remove(account, call);
      if (!call.tryNow()) call.giveUp();
    }
  }

  #keepTime(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.look();
    }, LOOK_MS).unref();
  }
}

function weightOf({ bytes }: WaitingCall): number {
  return bytes + UPSTREAM_QUEUE_CALL_BYTES;
}
