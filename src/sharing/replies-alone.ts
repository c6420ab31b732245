/**
 * Makes the replies of a node that is cut off to the asks of its own calls, divides the permits that later
 * asks return (those of the server, of the node's share, of the fallback quota), and keeps what was granted
 * until the node has reported it. equal-share.ts alone uses it. Main thread. Further test:
 * test/unit/sharing/equal-share.test.ts.
 *
 * Must hold: the server never gets a permit that it has not granted to this node, and the share gets back
 * its own alone. So permits that the node grants to itself have ticks below 0. What was granted of stocks
 * stays here until the server has replied to an ask with it; otherwise the server grants it to others.
 */
import {
  EXCHANGE_ASKS_MAX,
  type GrantedPermits,
  type LeaseAsk,
  type LeaseReply,
  mapStocks,
  type MinuteAsk,
  type MinuteGrant,
  type StockAsk,
  type StockGrant,
} from './coordinator.js';
import type { FallbackGrant } from './fallback-quota.js';

/**
 * The tick of permits of the fallback quota, which the server has on record at another node. They are
 * returned to nobody: they count there until they expire.
 */
const FALLBACK_TICK = Number.MIN_SAFE_INTEGER;

/** The tick below 0 that stands for a tick of the share, and the other way round. */
function mirrored(tick: number): number {
  return -1 - tick;
}

/** The permits of the share among `permits`, with the ticks by which the share granted them. */
export function permitsOfShare(permits: readonly GrantedPermits[]): GrantedPermits[] {
  return permits
    .filter(({ tick }) => tick < 0 && tick !== FALLBACK_TICK)
    .map(({ tick, count }) => ({ tick: mirrored(tick), count }));
}

/** The ask without permits that the node has granted to itself: the server does not know their ticks. */
export function withoutLocalPermits(ask: LeaseAsk): LeaseAsk {
  const { minute } = ask;
  if (minute === undefined) return ask;
  const { returned, used = [] } = minute;
  return { ...ask, minute: { ...minute, returned: grantedByServer(returned), used: grantedByServer(used) } };
}

function grantedByServer(permits: readonly GrantedPermits[]): GrantedPermits[] {
  return permits.filter(({ tick }) => tick >= 0);
}

/**
 * The reply of a node that is cut off to an ask of its own calls. Permits come from its share (`shareGrant`),
 * or, if it has none yet, from the fallback quota. Of what comes from the fallback quota the reply says that
 * nothing remains and that others may hold some, and sets `isUnknown` if less than `least` was granted.
 */
export function replyAlone(
  ask: LeaseAsk,
  shareGrant: MinuteGrant | undefined,
  fallbackGrant: FallbackGrant | undefined,
): LeaseReply {
  const { minute, stocks = {} } = ask;
  const minuteGrant = minute && minuteAlone(minute, shareGrant, fallbackGrant?.minute);
  let isUnknown = minute !== undefined && shareGrant === undefined && minute.least > minuteGrant!.granted;
  const grants = mapStocks(stocks, ({ least, period }, name): StockGrant => {
    const amount = fallbackGrant?.stocks[name] ?? 0n;
    isUnknown ||= least > amount;
    return { granted: amount, remaining: 0n, heldByOthers: true, period, freeInMs: 0 };
  });
  return { ...(minuteGrant && { minute: minuteGrant }), stocks: grants, ...(isUnknown && { isUnknown }) };
}

function minuteAlone(
  { forMs }: MinuteAsk,
  shareGrant: MinuteGrant | undefined,
  fallbackGrant: FallbackGrant['minute'],
): MinuteGrant {
  if (shareGrant !== undefined)
    return { ...shareGrant, tick: mirrored(shareGrant.tick), heldByOthers: false };
  const { count, validMs } = fallbackGrant ?? { count: 0, validMs: forMs };
  return { remaining: 0, heldByOthers: true, granted: count, tick: FALLBACK_TICK, validMs, freeInMs: 0 };
}

/**
 * What a node that is cut off holds of stocks, to be reported before anything else: the newest ask of each
 * scope, with what was granted to it. Bounded by the scopes of the ledger. Permits are not kept: those of the
 * share the server holds back, and those of the fallback quota it has on record at another node.
 */
export class UnreportedAsks {
  readonly #asks = new Map<string, LeaseAsk>();

  get size(): number {
    return this.#asks.size;
  }

  record({ scope, stocks = {} }: LeaseAsk, reply: LeaseReply): void {
    const earlierAsks = this.#asks.get(scope)?.stocks;
    const held = mapStocks(stocks, (ask, name): StockAsk => {
      const granted = reply.stocks?.[name]?.granted ?? 0n;
      const earlier = earlierAsks?.[name];
      // The ask's later period may be a mistake of this host's clock, and nothing is held of that period.
      if (earlier !== undefined && earlier.period < ask.period && granted === 0n) return earlier;
      return { ...ask, unused: ask.unused + granted, least: 0n, most: 0n };
    });
    this.#asks.set(scope, { scope, stocks: { ...earlierAsks, ...held } });
  }

  /** The next asks to report, as many as one exchange carries. */
  page(): LeaseAsk[] {
    return [...this.#asks.values()].slice(0, EXCHANGE_ASKS_MAX);
  }

  /** Removes asks that the server has replied to. A newer ask that was recorded meanwhile stays. */
  reported(page: readonly LeaseAsk[]): void {
    for (const ask of page) if (this.#asks.get(ask.scope) === ask) this.#asks.delete(ask.scope);
  }
}
