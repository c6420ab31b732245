/** How a wait ends while the coordinator is lost: the events of the world are called one by one. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { CoordinatorContact } from '#src/sharing/coordinator-contact.js';
import { CoordinatorLost } from '#src/sharing/coordinator.js';
import { LeaseWaits } from '#src/sharing/lease-waits.js';
import type { LeasedScope, QuotaLack, Wait } from '#src/sharing/leased-scope.js';
import { ManualClock } from '../../fixtures/manual-clock.js';

const NEED = { kind: 'admission', hold: asPicoUnits(0n) } as const;

/** A wait for one call slot of an account, of which others hold some, by the coordinator's last reply. */
function waitForOthers() {
  const clock = new ManualClock();
  const contact = new CoordinatorContact(() => 0.5);
  const waits = new LeaseWaits({ clock, contact, periodOf: () => 0, ask: () => undefined });
  // Only what LeaseWaits uses of a scope.
  const scope = {
    address: { kind: 'account', index: 0 },
    waits: new Set<Wait>(),
    isUnknown: false,
    lacksOf: (): QuotaLack[] => [{ scope, quota: 'calls_in_flight', lack: 'held_by_others' }],
    reject: () => undefined,
  } as unknown as LeasedScope;
  const ends: unknown[] = [];
  void waits.add(NEED, [scope]).then((end) => ends.push(end));
  return {
    ends,
    lose: () => {
      contact.recordFailure(new CoordinatorLost('unreachable', 'no route'), clock.monotonicMs());
      waits.onLoss();
    },
    reply: () => {
      contact.recordReply(clock.monotonicMs(), clock.monotonicMs());
      waits.onReplies([scope]);
    },
    pass: async (ms: number) => {
      clock.advance(ms);
      await Promise.resolve();
    },
    tick: async () => {
      waits.onTimer();
      await Promise.resolve();
    },
  };
}

void t.test('a loss between the deadline and the timer refuses no request by what others hold', async (t) => {
  const wait = waitForOthers();
  await wait.pass(1_501);
  wait.lose();
  await wait.pass(20);
  t.same(wait.ends, [], 'nobody knows whether others have given something back');
  await wait.tick();
  wait.lose();
  await wait.pass(500);
  t.same(wait.ends, [], 'its deadline is put off, once');
  await wait.pass(501);
  await wait.tick();
  t.same(wait.ends, ['lost']);
});

void t.test('a reply ends the loss, and with it the wait beyond its deadline', async (t) => {
  const wait = waitForOthers();
  await wait.pass(1_501);
  wait.lose();
  await wait.pass(20);
  wait.reply();
  await wait.pass(0);
  t.match(wait.ends, [{ refused: [{ kind: 'account', quota: 'calls_in_flight' }] }]);
});

void t.test('a request that waits for one scope takes nothing of the others', async (t) => {
  const clock = new ManualClock();
  const contact = new CoordinatorContact(() => 0.5);
  const waits = new LeaseWaits({ clock, contact, periodOf: () => 0, ask: () => undefined });
  // The last slot of the model's rule is here, and the coordinator has no more. Of the account's others hold.
  const left = { account: 0, model: 1 };
  const scopeOf = (kind: 'account' | 'model', lack: QuotaLack['lack']): LeasedScope => {
    const scope = {
      address: { kind, index: 0 },
      waits: new Set<Wait>(),
      isUnknown: false,
      lacksOf: (): QuotaLack[] => (left[kind] > 0 ? [] : [{ scope, quota: 'calls_in_flight', lack }]),
      allot: () => void (left[kind] -= 1),
      reject: () => undefined,
    } as unknown as LeasedScope;
    return scope;
  };
  const scopes = [scopeOf('account', 'held_by_others'), scopeOf('model', 'used_up')];
  const ends: unknown[] = [];
  void waits.add(NEED, scopes).then((end) => ends.push(end));
  waits.onReplies(scopes);
  await Promise.resolve();
  t.same(ends, [], 'nothing is used up');
  left.account = 1;
  waits.onReplies(scopes);
  await Promise.resolve();
  t.same(ends, ['try']);
  t.same(left, { account: 0, model: 0 });
});
