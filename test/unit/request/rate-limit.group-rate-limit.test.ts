import t from 'tap';
import { asGroupIndex } from '#src/core/units.js';
import { limitRate } from '#src/request/rate-limit.js';
import { knownCaller, openHouse, type House } from './support.js';

const PARENT = asGroupIndex(0);
const GROUP = asGroupIndex(1);

/** The account is in a group with `ofGroup` requests a minute, which is in one with `ofParent`. */
function groupedHouse(ofGroup: number | undefined, ofParent: number | undefined, ofPlan: number) {
  const house = openHouse();
  const { ledger, groupNames } = house.listener;
  groupNames.set(PARENT, 'company');
  groupNames.set(GROUP, 'research');
  ledger.groups.open(PARENT, { requestsPerMinute: ofParent });
  ledger.groups.open(GROUP, { requestsPerMinute: ofGroup }, { parent: PARENT });
  ledger.setGroup(house.account, GROUP);
  const ask = (key?: number) => {
    const limits = key === undefined ? undefined : { requestsPerMinute: key };
    if (limits !== undefined) ledger.keys.open(house.keyIndex, limits);
    const context = knownCaller(house, { requestsPerMinute: ofPlan }, limits);
    const rejection = limitRate(context, house.listener);
    return { rejection, ...context.rateLimit! };
  };
  return { house, ask };
}

const usedOf = ({ listener, account }: House) => ({
  account: listener.ledger.minute.usedOf(account),
  group: listener.ledger.groups.countsOf(GROUP).minuteUsed,
  parent: listener.ledger.groups.countsOf(PARENT).minuteUsed,
});

void t.test('the tightest scope is told, and a refusal has taken of none', (t) => {
  for (const [ofGroup, ofParent, ofPlan, whose] of [
    [2, 5, 9, 'The group research allows 2 '],
    [5, 2, 9, 'The group company allows 2 '],
    [undefined, 2, 9, 'The group company allows 2 '],
    [9, 9, 2, 'The plan plan allows 2 '],
    [2, 2, 2, 'The group research allows 2 '],
  ] as const) {
    const { house, ask } = groupedHouse(ofGroup, ofParent, ofPlan);
    t.match(ask(), { rejection: undefined, limit: 2, remaining: 1 }, whose);
    t.match(ask(), { rejection: undefined, limit: 2, remaining: 0 }, whose);
    const used = usedOf(house);
    const refused = ask();
    t.match(refused, { rejection: { code: 'rate_limit_exceeded' }, limit: 2, remaining: 0 }, whose);
    t.ok(refused.rejection!.message.startsWith(whose), refused.rejection!.message);
    t.same(usedOf(house), used, whose);
    t.same(used, { account: 2, group: ofGroup === undefined ? 0 : 2, parent: 2 }, whose);
    house.clock.nowMs = refused.rejection!.retryAfterSeconds! * 1_000;
    t.equal(ask().rejection, undefined, 'who waits is admitted');
  }
  t.end();
});

void t.test('of several that refuse the one that does so for longest is told', (t) => {
  const { house, ask } = groupedHouse(1, undefined, 1);
  const other = knownCaller(house, { requestsPerMinute: 1 });
  // The account's minute is used up now, the group's half a minute later.
  house.listener.ledger.setGroup(house.account, undefined);
  t.equal(limitRate(other, house.listener), undefined);
  house.clock.nowMs = 30_000;
  house.listener.ledger.groups.minute.take(GROUP, 1);
  house.listener.ledger.setGroup(house.account, GROUP);
  const { rejection } = ask();
  t.match(rejection!.message, /^The group research allows 1 .* Retry after 6\d seconds\.$/);
  t.end();
});

void t.test('a key with a limit of its own in a group', (t) => {
  const { house, ask } = groupedHouse(3, 2, 9);
  t.match(ask(1), { rejection: undefined, limit: 1, remaining: 0 });
  const { rejection } = ask();
  t.equal(rejection, undefined, 'another key of the account');
  t.same(usedOf(house), { account: 2, group: 2, parent: 2 });
  t.match(ask(1).rejection!.message, /^The group company allows 2 /, 'the group and not the key');
  t.end();
});

void t.test('groups without such a limit cost and change nothing', (t) => {
  const { house, ask } = groupedHouse(undefined, undefined, 2);
  t.match(ask(), { rejection: undefined, limit: 2, remaining: 1 });
  t.same(usedOf(house), { account: 1, group: 0, parent: 0 });
  t.end();
});
