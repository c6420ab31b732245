/**
 * Makes the replies of a node that is cut off to the asks of its own calls, and takes from later asks what
 * the server must not see of such replies. equal-share.ts alone uses it. Pure. Test:
 * test/unit/sharing/equal-share.test.ts.
 *
 * Must hold: the server never gets a permit that it has not granted to this node. So permits that the node
 * grants to itself have ticks below 0.
 */
import {
  type GrantedPermits,
  type LeaseAsk,
  type LeaseReply,
  mapStocks,
  type MinuteAsk,
  type MinuteGrant,
  type StockGrant,
} from './coordinator.js';
import type { FallbackGrant } from './fallback-quota.js';

/**
 * The tick of permits of the fallback quota, which the server has on record at another node. Permits of the
 * share have other ticks below 0 (`minuteAlone`). Neither are returned to the server (`withoutLocalPermits`).
 */
const FALLBACK_TICK = Number.MIN_SAFE_INTEGER;

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

/** Permits of the share get the tick -1 - t in place of t; `#grantOfShare` finds t again in a later ask. */
function minuteAlone(
  { forMs }: MinuteAsk,
  shareGrant: MinuteGrant | undefined,
  fallbackGrant: FallbackGrant['minute'],
): MinuteGrant {
  if (shareGrant !== undefined) return { ...shareGrant, tick: -1 - shareGrant.tick, heldByOthers: false };
  const { count, validMs } = fallbackGrant ?? { count: 0, validMs: forMs };
  return { remaining: 0, heldByOthers: true, granted: count, tick: FALLBACK_TICK, validMs, freeInMs: 0 };
}
