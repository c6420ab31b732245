/** Permits that a node grants to itself while it is cut off go back to whom they are of, or to nobody. */
import t from 'tap';
import type { LeaseAsk, MinuteAsk, MinuteGrant } from '#src/sharing/coordinator.js';
import { permitsOfShare, replyAlone, withoutLocalPermits } from '#src/sharing/replies-alone.js';

const MINUTE: MinuteAsk = { limit: 60, least: 1, most: 4, forMs: 1_000, returned: [], used: [] };
const ASK: LeaseAsk = { scope: 'acct_1', minute: MINUTE };

function shareGrant(tick: number, granted: number): MinuteGrant {
  return { granted, remaining: 10, heldByOthers: true, tick, validMs: 1_000, freeInMs: 0 };
}

void t.test('each permit goes back to the server, to the share or to nobody', (t) => {
  const fallback = { minute: { count: 3, validMs: 900 }, stocks: {} };
  for (const tick of [0, 1, 2_900_000_000]) {
    const ofServer = { tick, count: 2 };
    const ofShare = replyAlone(ASK, shareGrant(tick, 4), fallback).minute!;
    const ofFallback = replyAlone(ASK, undefined, fallback).minute!;
    t.match([ofShare, ofFallback], [{ granted: 4 }, { granted: 3 }]);
    const permits = [ofServer, { tick: ofShare.tick, count: 4 }, { tick: ofFallback.tick, count: 3 }];
    t.same(permitsOfShare(permits), [{ tick, count: 4 }]);
    const sent = withoutLocalPermits({ ...ASK, minute: { ...MINUTE, returned: permits, used: permits } });
    t.match(sent.minute, { returned: [ofServer], used: [ofServer] });
    t.equal(sent.minute!.returned.length + sent.minute!.used!.length, 2);
  }
  t.end();
});

void t.test('it is not known what remains where the fallback quota has too little', (t) => {
  const stock = { limit: 100n, period: 7, used: 0n, unused: 0n, least: 3n, most: 5n };
  const ask: LeaseAsk = { ...ASK, stocks: { calls_per_day: stock } };
  const reply = (permits: number, calls: bigint) =>
    replyAlone(ask, undefined, { minute: { count: permits, validMs: 9 }, stocks: { calls_per_day: calls } });
  t.equal(reply(1, 3n).isUnknown, undefined);
  t.equal(reply(0, 3n).isUnknown, true);
  t.equal(reply(1, 2n).isUnknown, true);
  t.equal(replyAlone(ask, undefined, undefined).isUnknown, true);
  t.match(replyAlone(ask, shareGrant(5, 0), undefined), { isUnknown: true }, 'no share has stocks');
  t.equal(replyAlone(ASK, shareGrant(5, 0), undefined).isUnknown, undefined, 'the share is used up');
  t.end();
});
