/** A process joins by itself, gives back what is recalled, and knows what its calls use. */
import t from 'tap';
import { Calendar } from '#src/core/calendar.js';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asAccountIndex, asCallSlot, asPicoUnits, asWallMs, type WallMs } from '#src/core/units.js';
import { type Coordinator, CoordinatorLost, type LeaseAsk } from '#src/sharing/coordinator.js';
import { LeaseManager } from '#src/sharing/lease-manager.js';
import { useOf } from '#src/sharing/sharing-stats.js';
import { ASK_MS } from '#src/upstream/upstream-quotas.js';
import { MemoryCoordinator } from '../../support/memory-coordinator.js';
import { EventTime, GOOD_NETWORK, LeaseNode, type Network } from '../../support/lease-world.js';
import { plainView } from '../../support/plain-asks.js';
import { randomOf } from '../../support/random.js';

const ACCOUNT = asAccountIndex(0);
const SUBJECT = 'acct_late';
const LIMITS = { requestsPerMinute: 60, callsPerDay: 1_000, callsInFlight: 10 };

/** One node; its account has plenty of money. */
function createWorld(
  network: Network = GOOD_NETWORK,
  limits = LIMITS,
): {
  readonly time: EventTime;
  readonly shared: MemoryCoordinator;
  readonly node: LeaseNode;
} {
  const time = new EventTime();
  const shared = new MemoryCoordinator(time.clock);
  shared.setCredited(SUBJECT, asPicoUnits(10n ** 12n));
  const identity = { host: 'host', slot: 0, incarnation: 'one' };
  const subjects = { accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => limits };
  return { time, shared, node: new LeaseNode(time, shared, identity, subjects, randomOf(7), network) };
}

void t.test('a start without the authority', async (t) => {
  const { time, node } = createWorld({ ...GOOD_NETWORK, lost: 1 });
  void node.keeper.start();
  await time.run(10_000);
  t.match(node.keeper.state, { lost: { reason: String }, exchanges: { sum: 0 } });
  node.authority.network = GOOD_NETWORK;
  // The pause between two tries is 3 s at the most.
  await time.run(5_000);
  t.match(node.keeper.state, { lost: undefined, scopes: 0 });
  t.equal(
    node.keeper.state.exchanges.counts.reduce((sum, count) => sum + count),
    1,
  );

  const before = node.authority.exchanges;
  await time.run(60_000);
  t.equal(node.authority.exchanges, before, 'an idle node says nothing');
  let end: string | undefined;
  void node.call(ACCOUNT, asPicoUnits(1_000n)).then((call) => (end = call.end));
  await time.run(100);
  t.equal(end, 'served');
});

void t.test('a coordinator that is back is asked at once', async (t) => {
  const { time, node } = createWorld({ ...GOOD_NETWORK, lost: 1 });
  void node.keeper.start();
  await time.run(10_000);
  // Then no exchange is under way, and the pause before the next one is 250 ms at least.
  const { failures } = node.keeper.state;
  while (node.keeper.state.failures === failures) await time.run(10);
  node.authority.network = GOOD_NETWORK;
  const coordinator: Coordinator = node.authority;
  coordinator.onBack?.();
  await time.run(20);
  t.match(node.keeper.state, { lost: undefined });
  const before = node.authority.exchanges;
  coordinator.onBack?.();
  await time.run(20);
  t.equal(node.authority.exchanges, before, 'who has not lost it asks nothing');
});

void t.test('a coordinator that is back while the process ends is asked nothing more', async (t) => {
  const { time, node } = createWorld({ ...GOOD_NETWORK, lost: 1 });
  void node.keeper.start();
  await time.run(10_000);
  void node.keeper.close();
  await time.run(10_000);
  const { failures } = node.keeper.state;
  const coordinator: Coordinator = node.authority;
  coordinator.onBack?.();
  await time.run(10_000);
  t.equal(node.keeper.state.failures, failures);
});

void t.test('a scope whose ask was lost is forgotten, if nothing is asked for it any more', async (t) => {
  const { time, node } = createWorld(GOOD_NETWORK, { ...LIMITS, requestsPerMinute: 0 });
  void node.keeper.start();
  await time.run(1_000);
  node.authority.network = { ...GOOD_NETWORK, lost: 1 };
  let end: string | undefined;
  void node.call(ACCOUNT, asPicoUnits(1_000n)).then((call) => (end = call.end));
  await time.run(20_000);
  t.not(end, undefined, 'the call has ended');
  node.authority.network = GOOD_NETWORK;
  await time.run(200_000);
  t.match(node.keeper.state, { lost: undefined, scopes: 0 });
});

void t.test(
  'money that lies idle comes back at once where it is recalled, but for what a call holds',
  async (t) => {
    const { time, shared, node } = createWorld();
    const outstanding = (): bigint => shared.view([SUBJECT])[0]!.stocks.balance?.unused ?? 0n;
    void node.keeper.start();
    node.keeper.recallMoney(ACCOUNT);
    void node.call(ACCOUNT, asPicoUnits(1_000n));
    await time.run(1_000);
    t.ok(outstanding() > 1_000n, 'plenty is left, so it is kept for long');
    node.keeper.recallMoney(ACCOUNT);
    await time.run(10);
    t.equal(outstanding(), 1_000n);
  },
);

void t.test('requests of a minute that was raised are asked for at once', async (t) => {
  const limits = { ...LIMITS, requestsPerMinute: 2 };
  const { time, node } = createWorld(GOOD_NETWORK, limits);
  void node.keeper.start();
  const ends: string[] = [];
  const call = (): void => void node.call(ACCOUNT, asPicoUnits(1n)).then(({ end }) => ends.push(end));
  for (let n = 0; n < 3; n++) call();
  await time.run(200);
  t.same(ends.sort(), ['minute', 'served', 'served']);
  limits.requestsPerMinute = 3;
  call();
  await time.run(20);
  t.equal(ends.at(-1), 'served', 'the refusal of a moment ago was of the lower limit');
  call();
  await time.run(200);
  t.equal(ends.at(-1), 'minute');
});

void t.test('what calls use is told, and what of the leases nobody has used', async (t) => {
  const { time, shared, node } = createWorld();
  // As an operator is shown it.
  const seen = () => {
    const calls = { ...node.keeper.callsUse({ kind: 'account', index: ACCOUNT })!, slot: 0 };
    const use = useOf(shared.view([SUBJECT], [0], 'host')[0]!, [calls]);
    return { ...use, minuteUsed: Number(use.minute.used) };
  };
  void node.keeper.start();
  t.match(seen(), { callsInFlightHere: 0, minuteUsed: 0, leased: { minute: 0 } }, 'nothing is leased');
  const slots: number[] = [];
  for (const hold of [1_000n, 500n])
    void node.call(ACCOUNT, asPicoUnits(hold)).then(({ slot }) => slots.push(slot!));
  await time.run(100);
  t.match(seen(), { callsInFlightHere: 2, heldHere: 1_500n, minuteUsed: 2, dayCalls: 2 });
  const { minute, dayCalls, callsInFlight, money } = seen().leased;
  t.ok(minute > 0 && dayCalls > 0 && callsInFlight > 0 && money > 0n, 'and more is leased');
  node.endCall(ACCOUNT, slots[0]!, asPicoUnits(600n));
  t.match(seen(), { callsInFlightHere: 1, heldHere: 1_100n }, 'a charge that is not in the store yet');
  node.flush();
  t.match(seen(), { callsInFlightHere: 1, heldHere: 500n, spent: 600n });
  node.endCall(ACCOUNT, slots[1]!, undefined);
  t.match(seen(), { callsInFlightHere: 0, heldHere: 0n, spent: 600n, minuteUsed: 2, dayCalls: 1 }, 'at rest');
  // Until all is given back, and told: whatever is on its way, nothing of it is shown as use.
  for (let rounds = 0; node.keeper.state.scopes > 0 && rounds < 3_000; rounds++) {
    const { heldHere, minuteUsed, dayCalls: calls } = seen();
    if (heldHere !== 0n || minuteUsed > 2 || calls !== 1)
      t.fail(`round ${rounds}: ${heldHere} ${minuteUsed} ${calls}`);
    await time.run(10);
  }
  t.equal(node.keeper.state.scopes, 0);
  t.match(plainView(shared.view([SUBJECT])[0]!), {
    callsInFlight: 0,
    moneyOutstanding: 0n,
    dayUsed: 1,
    spent: 600n,
  });
});

/** Replies that take so long, as of a process that waits for a lock or for the processor. */
const slowBy =
  (time: EventTime, delayMs: () => number) =>
  (coordinator: Coordinator): Coordinator => ({
    join: () => coordinator.join(),
    exchange: async (asks) => {
      const reply = await coordinator.exchange(asks);
      await new Promise<void>((resolve) => void time.after(delayMs(), resolve));
      return reply;
    },
    view: (scopes) => coordinator.view(scopes),
    leave: () => coordinator.leave(),
    close: () => coordinator.close(),
  });

void t.test('a call outlasts one exchange without a reply', async (t) => {
  const { time, node } = createWorld();
  void node.keeper.start();
  await time.run(100);
  node.authority.network = { ...GOOD_NETWORK, lost: 1 };
  let end: unknown;
  const account = [{ kind: 'account', index: ACCOUNT }] as const;
  void node.keeper.wait(account, { kind: 'minute' }).then((how) => (end = how));
  // The first exchange has its deadline after 1 s. The reply to the next one comes after 1.5 s.
  await time.run(1_020);
  node.authority.network = { ...GOOD_NETWORK, delayMs: 450 };
  await time.run(500);
  t.equal(end, undefined);
  await time.run(980);
  t.equal(end, 'try');
});

void t.test('a start lasts until the coordinator lends, if that waits for others', async (t) => {
  for (const [reason, checkingMs, startedMs] of [
    ['checking', 3_000, 4_000],
    ['checking', Infinity, 11_000],
    ['unreachable', 1_000, 2_000],
    ['unreachable', Infinity, 2_500],
    ['quarantine', Infinity, 100],
  ] as const) {
    const time = new EventTime();
    const shared = new MemoryCoordinator(time.clock);
    const identity = { host: 'host', slot: 0, incarnation: 'one' };
    const subjects = { accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => LIMITS };
    const sinceMs = time.nowMs;
    const isNew = (coordinator: Coordinator): Coordinator => ({
      join: () => coordinator.join(),
      exchange: (asks) =>
        time.nowMs - sinceMs < checkingMs
          ? Promise.reject(new CoordinatorLost(reason, 'wait'))
          : coordinator.exchange(asks),
      view: (scopes) => coordinator.view(scopes),
      leave: () => coordinator.leave(),
      close: () => coordinator.close(),
    });
    const node = new LeaseNode(time, shared, identity, subjects, randomOf(7), GOOD_NETWORK, 1_000, isNew);
    let tookMs = Infinity;
    void node.keeper.start().then(() => (tookMs = time.nowMs - sinceMs));
    await time.run(20_000);
    t.ok(tookMs <= startedMs, `${reason}: ${tookMs} ms`);
    const waitMsMax = { checking: 10_000, unreachable: 2_000, quarantine: 0 }[reason];
    t.ok(tookMs >= Math.min(checkingMs, waitMsMax), `${reason}: ${tookMs} ms`);
  }
});

void t.test('a start that waits for others outlasts an exchange without a reply', async (t) => {
  for (const silentFromMs of [0, 1_000]) {
    const time = new EventTime();
    const shared = new MemoryCoordinator(time.clock);
    const identity = { host: 'host', slot: 0, incarnation: 'one' };
    const subjects = { accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => LIMITS };
    const sinceMs = time.nowMs;
    const isNew = (coordinator: Coordinator): Coordinator => ({
      join: () => coordinator.join(),
      exchange: (asks) => {
        const passedMs = time.nowMs - sinceMs;
        if (passedMs >= 4_000) return coordinator.exchange(asks);
        const isLate = passedMs >= silentFromMs && passedMs < silentFromMs + 1_000;
        return Promise.reject(new CoordinatorLost(isLate ? 'deadline' : 'checking', 'wait'));
      },
      view: (scopes) => coordinator.view(scopes),
      leave: () => coordinator.leave(),
      close: () => coordinator.close(),
    });
    const node = new LeaseNode(time, shared, identity, subjects, randomOf(7), GOOD_NETWORK, 1_000, isNew);
    let tookMs = Infinity;
    void node.keeper.start().then(() => (tookMs = time.nowMs - sinceMs));
    await time.run(20_000);
    t.ok(tookMs >= 4_000 && tookMs <= 5_000, `silent from ${silentFromMs} ms: ${tookMs} ms`);
  }
});

void t.test('without a denial no request is told that a limit is used up', async (t) => {
  for (const [delayMs, expected] of [
    [2_000, 'served'],
    [4_000, 'lost'],
  ] as const) {
    const time = new EventTime();
    const shared = new MemoryCoordinator(time.clock);
    shared.setCredited(SUBJECT, asPicoUnits(10n ** 12n));
    const identity = { host: 'host', slot: 0, incarnation: 'one' };
    const subjects = { accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => LIMITS };
    const delays: number[] = [];
    const slow = slowBy(time, () => delays.shift() ?? 0);
    const node = new LeaseNode(time, shared, identity, subjects, randomOf(7), GOOD_NETWORK, 1_000, slow);
    void node.keeper.start();
    await time.run(100);
    delays.push(delayMs);
    const ends: string[] = [];
    for (let call = 0; call < 3; call++)
      void node.call(ACCOUNT, asPicoUnits(1n)).then(({ end }) => ends.push(end));
    await time.run(3_000);
    t.same(new Set(ends), new Set([expected]), `replies after ${delayMs} ms`);
    await time.run(3_000);
    void node.call(ACCOUNT, asPicoUnits(1n)).then(({ end }) => ends.push(end));
    await time.run(1_000);
    t.equal(ends.at(-1), 'served', 'and then as before');
    t.equal(node.keeper.state.waits, 0);
  }
});

void t.test('who cannot pay is told so for ever, although nothing else is used', async (t) => {
  const { time, node } = createWorld(GOOD_NETWORK, { ...LIMITS, requestsPerMinute: 1_000_000 });
  const plan = { callsPerDay: LIMITS.callsPerDay, callsInFlightMax: LIMITS.callsInFlight, quotas: NO_QUOTAS };
  const need = { hold: asPicoUnits(10n ** 13n), tokens: 0 };
  const quotas = new Map<string, number>();
  const rejected = () => {
    const who = { account: ACCOUNT, plan, key: undefined };
    const quota = node.ledger.admit(asCallSlot(999), who, need)?.quota ?? 'none';
    quotas.set(quota, (quotas.get(quota) ?? 0) + 1);
  };
  void node.keeper.start();
  // Long enough for calls of the day and slots, which lie idle, to be given back.
  for (let ms = 0; ms < 180_000; ms += 20) {
    void node.call(ACCOUNT, need.hold).then(rejected);
    await time.run(20);
  }
  t.same([...quotas.keys()], ['balance']);
  t.ok(quotas.get('balance')! > 8_000);
});

void t.test('a call that needs nothing of a quota gets a lease of it, while any is left', async (t) => {
  const quotas = { ...NO_QUOTAS, tokensPerMinute: 10, spendPerDay: asPicoUnits(10_000n) };
  const time = new EventTime();
  const shared = new MemoryCoordinator(time.clock);
  shared.setCredited(SUBJECT, asPicoUnits(10n ** 12n));
  const identity = { host: 'host', slot: 0, incarnation: 'one' };
  const subjects = { accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => LIMITS, quotas };
  const node = new LeaseNode(time, shared, identity, subjects, randomOf(7));
  void node.keeper.start();
  await time.run(100);
  // A model that costs nothing, with `token_quota: settle`.
  const HOLDS_ONE = 1;
  const call = async (tokens: number): Promise<unknown> => {
    const found: { readonly end: string; readonly slot?: number }[] = [];
    void node.call(ACCOUNT, asPicoUnits(0n), () => undefined, HOLDS_ONE).then((end) => found.push(end));
    await time.run(3_000);
    const [first] = found;
    if (first?.slot !== undefined) node.endCall(ACCOUNT, first.slot, asPicoUnits(0n), tokens);
    await time.run(1_000);
    return first?.end;
  };
  t.equal(await call(4), 'served');
  t.equal(await call(6), 'served', 'six are left');
  t.equal(await call(0), 'admission', 'none is left');
  await time.run(70_000);
  t.equal(await call(0), 'served');
  // A stored response that has a price takes no tokens, and gets in while any are left.
  const hit = node.call(ACCOUNT, asPicoUnits(1n));
  await time.run(3_000);
  t.match(await hit, { end: 'served' });
  const { minuteTokens } = node.ledger.settledOf({ kind: 'account', index: ACCOUNT })!;
  t.equal(minuteTokens, 0, 'the store gets no tokens that were used over a minute ago');
});

void t.test('a free call waits for no quota but that of calls in flight', async (t) => {
  const { time, node } = createWorld(GOOD_NETWORK, { ...LIMITS, callsPerDay: 1 });
  void node.keeper.start();
  void node.call(ACCOUNT, asPicoUnits(1n));
  await time.run(30_000);
  let end: unknown;
  void node.keeper
    .wait([{ kind: 'account', index: ACCOUNT }], { kind: 'admission', hold: asPicoUnits(0n), isFree: true })
    .then((how) => (end = how));
  await time.run(100);
  t.equal(end, 'try', 'although no call of the day is left');
});

void t.test('who cannot pay is refused by the balance, and no other call by what was free', async (t) => {
  const { time, node } = createWorld(GOOD_NETWORK, { ...LIMITS, callsInFlight: 1 });
  void node.keeper.start();
  const ends: string[] = [];
  const slots: number[] = [];
  const call = (hold: bigint): void =>
    void node.call(ACCOUNT, asPicoUnits(hold)).then(({ end, slot }) => {
      ends.push(end);
      if (slot !== undefined) slots.push(slot);
    });
  call(1n);
  await time.run(100);
  call(1n);
  await time.run(2_000);
  t.same(ends.splice(0), ['served', 'admission'], 'the one slot is in use');
  node.endCall(ACCOUNT, slots.pop()!, asPicoUnits(1n));
  // The slot is here, and the last that the coordinator said of slots is that it has none.
  let end: unknown;
  const account = [{ kind: 'account', index: ACCOUNT }] as const;
  void node.keeper
    .wait(account, { kind: 'admission', hold: asPicoUnits(10n ** 13n) })
    .then((how) => (end = how));
  await time.run(1_600);
  t.match(end, { refused: [{ kind: 'account', index: ACCOUNT, quota: 'balance' }] });
  call(1n);
  await time.run(50);
  t.same(ends, ['served']);
});

void t.test('a credit is in force within the pause after a denial, however busy the client is', async (t) => {
  const { time, shared, node } = createWorld(GOOD_NETWORK, { ...LIMITS, requestsPerMinute: 1_000_000 });
  shared.setCredited(SUBJECT, asPicoUnits(0n));
  void node.keeper.start();
  let served = 0;
  const hammer = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += 20) {
      void node.call(ACCOUNT, asPicoUnits(1_000n)).then(({ end }) => (served += end === 'served' ? 1 : 0));
      await time.run(20);
    }
  };
  await hammer(5_000);
  t.equal(served, 0);
  shared.setCredited(SUBJECT, asPicoUnits(10n ** 12n));
  await hammer(300);
  t.ok(served > 0);
});

void t.test('a lower limit of calls in flight holds, although its slots are always in use', async (t) => {
  const limits = { ...LIMITS, requestsPerMinute: 1_000_000, callsInFlight: 8 };
  const { time, node } = createWorld(GOOD_NETWORK, limits);
  void node.keeper.start();
  const running: number[] = [];
  const call = (): void =>
    void node.call(ACCOUNT, asPicoUnits(1n)).then(({ slot }) => {
      if (slot !== undefined) running.push(slot);
    });
  for (let n = 0; n < 8; n++) call();
  await time.run(1_000);
  t.equal(running.length, 8);
  limits.callsInFlight = 2;
  // Whenever a call ends, the next one comes at once.
  for (let n = 0; n < 40; n++) {
    await time.run(500);
    const slot = running.shift();
    if (slot !== undefined) node.endCall(ACCOUNT, slot, asPicoUnits(1n));
    call();
  }
  await time.run(2_000);
  t.equal(running.length, 2);
});

void t.test('a denial of an upstream comes before its call gives up', async (t) => {
  const { time, node } = createWorld();
  void node.keeper.start();
  for (let call = 0; call < LIMITS.callsInFlight; call++) void node.call(ACCOUNT, asPicoUnits(1n));
  await time.run(200);
  let end: unknown;
  void node.keeper
    .wait([{ kind: 'account', index: ACCOUNT }], { kind: 'upstream' })
    .then((how) => (end = how));
  await time.run(ASK_MS - 50);
  t.match(end, { refused: [{ kind: 'account', index: ACCOUNT, quota: 'calls_in_flight' }] });
});

void t.test('a node that replies to itself keeps to the calendar of the coordinator', async (t) => {
  const time = new EventTime();
  const aheadMs = 3 * 86_400_000;
  let isAlone: true | false = false;
  const wallMs = (): WallMs => asWallMs(time.clock.wallMs() + (isAlone ? 0 : aheadMs));
  const seenMs: number[] = [];
  const manager = new LeaseManager({
    coordinator: {
      join: () => Promise.resolve(wallMs()),
      exchange: () => Promise.resolve({ wallMs: wallMs(), replies: [], ...(isAlone && { isAlone }) }),
      view: () => Promise.resolve([]),
      leave: () => Promise.resolve(),
      close: () => Promise.resolve(),
    },
    addressOf: () => undefined,
    calendar: new Calendar(),
    clock: time.clock,
    timers: { soon: (act) => void time.after(0, act), after: (ms, act) => time.after(ms, act) },
    random: () => 0,
    onCalendar: (then, hostThen) => seenMs.push(then - hostThen),
    onContact: () => undefined,
  });
  await manager.start();
  t.same([...new Set(seenMs.splice(0))], [aheadMs]);
  isAlone = true;
  await manager.start();
  t.same(seenMs, []);
  isAlone = false;
  await manager.start();
  t.same(seenMs, [aheadMs]);
});

void t.test('after a long silence no call begins whose slot others may have by its end', async (t) => {
  const time = new EventTime();
  const shared = new MemoryCoordinator(time.clock);
  const limits = { requestsPerMinute: 0, callsPerDay: 1_000_000, callsInFlight: 4 };
  const subjects = { accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => limits };
  const identity = { host: 'host', slot: 0, incarnation: 'one' };
  const node = new LeaseNode(
    time,
    shared,
    identity,
    { ...subjects, silentMsMax: 40_000 },
    randomOf(7),
    GOOD_NETWORK,
  );
  void node.keeper.start();
  const [servedMs, held]: [number[], number[]] = [[], []];
  let inFlight = 0;
  let inFlightMost = 0;
  const call = async (ms: number): Promise<void> => {
    // Free of charge: nothing but a slot is needed.
    const { slot } = await node.call(ACCOUNT, asPicoUnits(0n));
    if (slot === undefined) return;
    servedMs.push(time.nowMs);
    inFlightMost = Math.max(inFlightMost, (inFlight += 1));
    const end = (): void => {
      inFlight -= 1;
      node.endCall(ACCOUNT, slot, asPicoUnits(0n));
    };
    if (ms === Infinity) held.push(slot);
    else time.after(ms, end);
  };
  /** More calls than there are slots, so that each one that comes back is taken at once. */
  const hammer = async (ms: number): Promise<number> => {
    const before = servedMs.length;
    for (let atMs = 0; atMs < ms; atMs += 50) time.after(atMs, () => void call(1_000));
    await time.run(ms);
    return servedMs.length - before;
  };
  void call(Infinity);
  void call(Infinity);
  await hammer(5_000);
  node.authority.network = { ...GOOD_NETWORK, lost: 1 };
  // The last heartbeat was up to 5 s ago.
  t.ok((await hammer(33_000)) > 20, 'it goes on with what it holds');
  await time.run(8_000);
  t.equal(await hammer(30_000), 0, 'and then no more');
  t.equal(inFlight, 2, 'those that had begun go on');
  node.authority.network = GOOD_NETWORK;
  await time.run(5_000);
  t.equal(plainView(shared.view([SUBJECT])[0]!).callsInFlight, 2, 'and are counted when it is back');
  t.ok((await hammer(5_000)) > 5, 'which serves again');
  t.equal(inFlightMost, 4);
  for (const slot of held) node.endCall(ACCOUNT, slot, asPicoUnits(0n));
  await time.run(60_000);
  t.equal(plainView(shared.view([SUBJECT])[0]!).callsInFlight, 0);
  t.equal(node.keeper.state.scopes, 0);
});

void t.test('a process that ends asks for nothing more', async (t) => {
  const { time, shared, node } = createWorld();
  void node.keeper.start();
  void node
    .call(ACCOUNT, asPicoUnits(1_000n))
    .then(({ slot }) => node.endCall(ACCOUNT, slot!, asPicoUnits(0n)));
  await time.run(1_000);
  // A listener says that its leases run low, and no exchange comes before the end.
  node.keeper.askForMore([{ kind: 'account', index: ACCOUNT }]);
  void node.keeper.close();
  await time.run(1_000);
  const { minute, stocks } = shared.view([SUBJECT])[0]!;
  t.match(stocks.calls_per_day, { used: 1n, unused: 0n });
  t.equal(minute.weighing, 1);
});

void t.test('after a silence all that is held is reported, also what was known', async (t) => {
  const time = new EventTime();
  const shared = new MemoryCoordinator(time.clock);
  shared.setCredited(SUBJECT, asPicoUnits(10n ** 12n));
  const subjects = { accountsMax: 1, subjectOf: () => SUBJECT, limitsOf: () => LIMITS };
  const identity = { host: 'host', slot: 0, incarnation: 'one' };
  let asks: LeaseAsk[] = [];
  const recorded = (authority: Coordinator): Coordinator => ({
    join: () => authority.join(),
    exchange: (asked) => {
      asks.push(...asked);
      return authority.exchange(asked);
    },
    view: (scopes) => authority.view(scopes),
    leave: () => authority.leave(),
    close: () => authority.close(),
  });
  const more = [randomOf(7), GOOD_NETWORK, 10, recorded] as const;
  const node = new LeaseNode(time, shared, identity, subjects, ...more);
  void node.keeper.start();
  void node.call(ACCOUNT, asPicoUnits(1_000n));
  await time.run(60_000);
  asks = [];
  await time.run(60_000);
  t.same(asks, [], 'all is known');
  node.authority.network = { ...GOOD_NETWORK, lost: 1 };
  await time.run(40_000);
  asks = [];
  node.authority.network = GOOD_NETWORK;
  await time.run(5_000);
  t.match(asks, [{ stocks: { balance: { unused: 1_000n }, calls_in_flight: { unused: 1n } } }]);
});
