/** What a rejected call asks of the coordinator, and when it gives up. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import type { LeaseAsk, LeaseChannel, LeaseEnd, LeaseNeed } from '#src/channel/lease-channel.js';
import { COUNT_TOKENS } from '#src/doors/messages/messages-door.js';
import { AdmissionAsk } from '#src/request/admission-lease.js';
import { CallContext } from '#src/request/context.js';
import { chooseModel } from '#src/request/admit.js';
import { LEASE_LATE } from '#src/request/rejections.js';
import { chatCall, knownCaller, openHouse } from './support.js';

void t.test(
  'a rejected call asks for its whole hold, then for what the balance has, if it may',
  async (t) => {
    for (const [name, isFree, quota, needs] of [
      ['a call that costs', false, 'balance', 2],
      ['a free call cannot be lowered', true, 'balance', 1],
      ['no money was refused', false, 'calls_in_flight', 1],
    ] as const) {
      const house = openHouse({ lowBalance: 'clamp' });
      const context = isFree ? new CallContext('req_test', 1, '', COUNT_TOKENS) : knownCaller(house);
      context.caller = knownCaller(house).caller;
      const call = chatCall({ max_tokens: 10 });
      chooseModel(context, call, house.listener);
      context.asksLease = true;
      const asked: LeaseNeed[] = [];
      const leases = {
        ask: ({ need }: LeaseAsk) => {
          asked.push(need);
          return Promise.resolve({ refused: [{ kind: 'account', index: house.account, quota }] });
        },
      } as unknown as LeaseChannel;
      const ask = new AdmissionAsk(context, house.listener, leases);
      for (let tries = 0; tries < 5; tries++) t.equal(await ask.askAgain(call), undefined, name);
      t.equal(asked.length, needs, name);
      if (isFree) t.same(asked[0], { kind: 'admission', hold: asPicoUnits(0n), tokens: 0, isFree: true });
    }
  },
);

void t.test(
  'a call with less output that found other quotas taken each time is late, not refused',
  async (t) => {
    const house = openHouse({ lowBalance: 'clamp' });
    const context = knownCaller(house);
    const call = chatCall({ max_tokens: 10 });
    chooseModel(context, call, house.listener);
    context.asksLease = true;
    const ends: LeaseEnd[] = [{ refused: [{ kind: 'account', index: house.account, quota: 'balance' }] }];
    const leases = {
      ask: () => {
        house.clock.nowMs += 700;
        return Promise.resolve(ends.shift() ?? 'try');
      },
    } as unknown as LeaseChannel;
    const ask = new AdmissionAsk(context, house.listener, leases);
    const decisions = [];
    for (let tries = 0; tries < 5; tries++) decisions.push(await ask.askAgain(call));
    t.same(decisions, [undefined, undefined, undefined, undefined, LEASE_LATE]);
  },
);

void t.test(
  'of a slow coordinator each stage asks once, and the call three times late at most',
  async (t) => {
    const refusal: LeaseEnd = { refused: [{ kind: 'account', index: 0, quota: 'balance' }] };
    for (const [triesBefore, asks] of [
      [0, 3],
      [1, 3],
      [2, 4],
      [3, 3],
    ] as const) {
      const house = openHouse({ lowBalance: 'clamp' });
      const context = knownCaller(house);
      const call = chatCall({ max_tokens: 10 });
      chooseModel(context, call, house.listener);
      context.asksLease = true;
      const ends: LeaseEnd[] = [...Array.from({ length: triesBefore }, (): LeaseEnd => 'try'), refusal];
      let asked = 0;
      const leases = {
        ask: () => {
          asked += 1;
          house.clock.nowMs += 2_000;
          return Promise.resolve(ends.shift() ?? 'try');
        },
      } as unknown as LeaseChannel;
      const ask = new AdmissionAsk(context, house.listener, leases);
      let decision;
      for (let turns = 0; turns < 10 && decision === undefined; turns++) decision = await ask.askAgain(call);
      t.equal(decision, LEASE_LATE, 'not told that its money is used up, which is not known');
      t.equal(asked, asks, `the whole hold was refused after ${triesBefore} tries`);
    }
  },
);
