import t from 'tap';
import { asPicoUnits, type PicoUnits } from '#src/core/units.js';
import { Balance, CREDITED_PICO_UNITS_MAX, LeasedBalance } from '#src/ledger/balance.js';
import { createLedgerBuffers, openLedgerViews } from '#src/ledger/layout.js';
import { Leases } from '#src/ledger/leases.js';
import { ACCOUNT, FakeClock, interruptAt } from '../../fixtures/ledger-world.js';

const pico = (amount: bigint): PicoUnits => asPicoUnits(amount);

function createBalance(credited = 100n): { balance: Balance; other: Balance } {
  const views = openLedgerViews(createLedgerBuffers({ accountsMax: 2, callsInFlightMax: 1 }));
  const balance = new Balance(views);
  balance.set(ACCOUNT, pico(credited), pico(0n), pico(0n));
  return { balance, other: new Balance(views) };
}

void t.test('holds what is there, to the last pico-unit, and nothing beyond', (t) => {
  const { balance } = createBalance();
  t.notOk(balance.hold(ACCOUNT, pico(101n)));
  t.notOk(balance.hold(ACCOUNT, pico(1n << 80n)), 'a hold wider than a word is refused, not wrapped');
  t.ok(balance.hold(ACCOUNT, pico(0n)));
  t.ok(balance.hold(ACCOUNT, pico(100n)));
  t.notOk(balance.hold(ACCOUNT, pico(1n)));
  t.ok(balance.hold(ACCOUNT, pico(0n)), 'a call that costs nothing needs no balance');
  t.same(balance.read(ACCOUNT), { credited: 100n, available: 0n, held: 100n, spent: 0n, uncovered: 0n });
  t.throws(() => balance.hold(ACCOUNT, pico(-1n)), /not negative/);
  t.end();
});

void t.test('settles below, at and beyond the hold', (t) => {
  const settled = (cost: bigint): unknown => {
    const { balance } = createBalance();
    balance.hold(ACCOUNT, pico(60n));
    const settlement = { ...balance.settle(ACCOUNT, pico(60n), pico(cost)) };
    return { ...settlement, read: balance.read(ACCOUNT) };
  };
  const funds = (available: bigint, spent: bigint, uncovered: bigint): unknown => ({
    credited: 100n,
    available,
    held: 0n,
    spent,
    uncovered,
  });
  t.same(settled(0n), { charged: 0n, uncovered: 0n, read: funds(100n, 0n, 0n) });
  t.same(settled(59n), { charged: 59n, uncovered: 0n, read: funds(41n, 59n, 0n) });
  t.same(settled(60n), { charged: 60n, uncovered: 0n, read: funds(40n, 60n, 0n) });
  t.same(settled(61n), { charged: 61n, uncovered: 0n, read: funds(39n, 61n, 0n) });
  t.same(settled(100n), { charged: 100n, uncovered: 0n, read: funds(0n, 100n, 0n) });
  t.same(settled(101n), { charged: 100n, uncovered: 1n, read: funds(0n, 100n, 1n) });
  const huge = 1n << 90n;
  t.same(settled(huge), {
    charged: 100n,
    uncovered: huge - 100n,
    read: funds(0n, 100n, CREDITED_PICO_UNITS_MAX),
  });
  t.throws(() => settled(-1n), /not negative/);
  t.end();
});

void t.test('credits and debits within their bounds', (t) => {
  const { balance } = createBalance();
  t.ok(balance.credit(ACCOUNT, pico(50n)));
  balance.hold(ACCOUNT, pico(30n));
  t.notOk(balance.credit(ACCOUNT, pico(-121n)), 'what is held cannot be taken out');
  t.ok(balance.credit(ACCOUNT, pico(-120n)));
  t.same(balance.read(ACCOUNT), { credited: 30n, available: 0n, held: 30n, spent: 0n, uncovered: 0n });
  t.notOk(balance.credit(ACCOUNT, pico(CREDITED_PICO_UNITS_MAX - 29n)));
  t.ok(balance.credit(ACCOUNT, pico(CREDITED_PICO_UNITS_MAX - 30n)));
  t.notOk(balance.credit(ACCOUNT, pico(1n)));
  t.notOk(balance.credit(ACCOUNT, pico(1n << 70n)));
  t.notOk(balance.credit(ACCOUNT, pico(-(1n << 70n))));
  t.equal(balance.read(ACCOUNT).credited, CREDITED_PICO_UNITS_MAX);
  t.equal(balance.read(ACCOUNT).held, 30n);
  t.end();
});

void t.test('books that do not balance are not opened', (t) => {
  const { balance } = createBalance();
  const set = (credited: bigint, spent: bigint, uncovered: bigint) => () =>
    balance.set(ACCOUNT, pico(credited), pico(spent), pico(uncovered));
  t.throws(set(1n, 2n, 0n), /no more was spent/);
  t.throws(set(1n, -1n, 0n), /no more was spent/);
  t.throws(set(CREDITED_PICO_UNITS_MAX + 1n, 0n, 0n), /credited/);
  t.throws(set(1n, 0n, -1n), /uncovered/);
  t.doesNotThrow(set(CREDITED_PICO_UNITS_MAX, CREDITED_PICO_UNITS_MAX, 0n));
  t.end();
});

void t.test('a thread stopped at any step of any operation: the law holds throughout', (t) => {
  type Act = (balance: Balance) => void;
  const acts: Record<string, Act> = {
    hold: (balance) => balance.hold(ACCOUNT, pico(40n)) && balance.giveBack(ACCOUNT, pico(40n)),
    settleBelow: (balance) => balance.settle(ACCOUNT, pico(20n), pico(5n)),
    settleBeyond: (balance) => balance.settle(ACCOUNT, pico(20n), pico(55n)),
    settleUncovered: (balance) => balance.settle(ACCOUNT, pico(20n), pico(500n)),
    giveBack: (balance) => balance.giveBack(ACCOUNT, pico(20n)),
  };
  let cases = 0;
  for (const [name, act] of Object.entries(acts)) {
    for (const [intruderName, intrusion] of Object.entries(acts)) {
      for (let step = 0, reached = true; reached; step++) {
        const { balance, other } = createBalance();
        balance.hold(ACCOUNT, pico(20n));
        balance.hold(ACCOUNT, pico(20n));
        const check = (held: bigint | undefined): void => {
          const funds = other.read(ACCOUNT);
          const what = `${intruderName} at step ${step} of ${name}`;
          if (funds.available < 0n || funds.held < 0n || funds.spent < 0n) t.fail(what, { funds });
          if (held !== undefined && funds.held !== held) t.fail(`held after ${what}`, { funds });
        };
        reached = interruptAt(
          step,
          () => act(balance),
          () => {
            check(undefined);
            intrusion(other);
            check(undefined);
          },
        );
        const done = (name === 'hold' ? 0n : 20n) + (reached && intruderName !== 'hold' ? 20n : 0n);
        check(40n - done);
        cases++;
      }
    }
  }
  t.ok(cases > 80, `${cases} cases`);
  t.end();
});

void t.test('a reader stopped at any step sees held too high for a moment, never negative', (t) => {
  const intrusions: ((balance: Balance) => void)[] = [
    (balance) => balance.settle(ACCOUNT, pico(20n), pico(20n)),
    (balance) => balance.settle(ACCOUNT, pico(20n), pico(70n)),
    (balance) => balance.hold(ACCOUNT, pico(50n)) && balance.settle(ACCOUNT, pico(50n), pico(50n)),
    (balance) => balance.giveBack(ACCOUNT, pico(20n)),
  ];
  for (const intrusion of intrusions) {
    for (let step = 0, reached = true; reached; step++) {
      const { balance, other } = createBalance();
      balance.hold(ACCOUNT, pico(20n));
      reached = interruptAt(
        step,
        () => {
          const funds = balance.read(ACCOUNT);
          t.ok(funds.held >= 0n && funds.available >= 0n);
          t.equal(funds.available + funds.held + funds.spent, funds.credited);
        },
        () => intrusion(other),
      );
    }
  }
  t.end();
});

void t.test('a reader stopped twice, by a reversal and by a charge, sees no negative hold', (t) => {
  const charges: ((balance: Balance) => void)[] = [
    (balance) => balance.settle(ACCOUNT, pico(0n), pico(20n)),
    (balance) => balance.hold(ACCOUNT, pico(20n)) && balance.settle(ACCOUNT, pico(20n), pico(20n)),
  ];
  let cases = 0;
  for (const charge of charges) {
    const reached = [true];
    for (let first = 0; reached.length > 0; first++) {
      reached.length = 0;
      for (let second = 0, isSecond = true; isSecond; second++) {
        const { balance, other } = createBalance();
        balance.hold(ACCOUNT, pico(10n));
        balance.settle(ACCOUNT, pico(10n), pico(10n));
        const check = (): void => {
          const funds = balance.read(ACCOUNT);
          cases++;
          if (funds.held < 0n) t.fail(`reversed at step ${first}, charged at step ${second}`, { funds });
        };
        const reverse = (): void => other.reverse(ACCOUNT, pico(10n), pico(0n));
        isSecond = interruptAt(
          second,
          () => interruptAt(first, check, reverse) && reached.push(true),
          () => charge(other),
        );
      }
    }
  }
  t.ok(cases > 20, `${cases} cases`);
  t.end();
});

void t.test('collects what is uncovered, as far as there is money, and nothing else', (t) => {
  const { balance } = createBalance();
  balance.hold(ACCOUNT, pico(20n));
  balance.settle(ACCOUNT, pico(20n), pico(130n));
  t.match(balance.read(ACCOUNT), { available: 0n, spent: 100n, uncovered: 30n });
  t.equal(balance.collect(ACCOUNT, pico(30n)), 0n);
  balance.credit(ACCOUNT, pico(50n));
  t.equal(balance.collect(ACCOUNT, pico(-5n)), 0n, 'a negative amount makes no money');
  t.equal(balance.collect(ACCOUNT, pico(10n)), 10n);
  t.match(balance.read(ACCOUNT), { available: 40n, spent: 110n, uncovered: 20n });
  t.equal(balance.collect(ACCOUNT, pico(1n << 80n)), 20n, 'what no call has cost is not charged');
  t.match(balance.read(ACCOUNT), { available: 20n, held: 0n, spent: 130n, uncovered: 0n });
  t.end();
});

void t.test(
  'at whatever step another thread holds or gives back, the hold that passes the mark says so',
  (t) => {
    const acts: Readonly<Record<string, (balance: Balance) => void>> = {
      'another hold': (balance) => balance.hold(ACCOUNT, pico(20n)),
      'a hold that alone passes the mark': (balance) => balance.hold(ACCOUNT, pico(60n)),
      'money that comes back': (balance) => balance.giveBack(ACCOUNT, pico(10n)),
    };
    for (const [name, act] of Object.entries(acts)) {
      for (let step = 0; ; step++) {
        const buffers = createLedgerBuffers({ accountsMax: 2, callsInFlightMax: 1, shared: true });
        let said = 0;
        const [one, two] = [0, 1].map(() => new LeasedBalance(openLedgerViews(buffers), () => (said += 1)));
        new Leases(buffers, new FakeClock()).addMoney(ACCOUNT, pico(100n), pico(75n));
        one!.hold(ACCOUNT, pico(10n));
        const reached = interruptAt(
          step,
          () => one!.hold(ACCOUNT, pico(20n)),
          () => act(two!),
        );
        if (!reached) break;
        const passes = said > 0 || one!.available(ACCOUNT) >= 75n;
        if (said > 1 || !passes) t.fail(`${name} at step ${step}: said ${said} times`);
      }
    }
    t.end();
  },
);
