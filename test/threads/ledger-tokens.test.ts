/**
 * Four threads want more tokens than key, account and two groups give, while any of them moves the time in
 * the middle of others' calls: never a token too many in any 60 seconds or on any day, and the books are
 * right when all have ended. Threads that are terminated anywhere leave at most what their own last call held
 * or used.
 *
 * In `npm test` each case makes some 32,000 attempts; with TOLLGATE_CRASH_FULL=1 (`npm run test:crash`)
 * 400,000.
 */
import { once } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { Calendar, SPECIFIED_TIMEZONE } from '#src/core/calendar.js';
import { asAccountIndex, asCallSlot, asGroupIndex, asKeyIndex } from '#src/core/units.js';
import { createLedgerBuffers, type Scope } from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { TICK_MS } from '#src/ledger/window.js';
import {
  accountOf,
  ACCOUNTS,
  ADMITTED,
  ASKED,
  callScopes,
  ENDED,
  ENDING,
  GO,
  GROUPS,
  HELD,
  innerOf,
  KEY,
  KEYS,
  limitsOf,
  LOG_FIELDS,
  msOf,
  OUTER,
  SLOTS_PER_THREAD,
  StampClock,
  STEERING_BYTES,
  USED,
  type TokenLimits,
  type TokensJob,
  type TokensReport,
} from '../fixtures/ledger-tokens.js';
import { START_WALL_MS, stateOf } from '../fixtures/ledger-world.js';
import { judgeTokens, type LoggedCall } from '../support/token-judge.js';
import { newSeed, randomBelow } from '../support/random.js';

const THREADS = 4;
const ATTEMPTS = process.env.TOLLGATE_CRASH_FULL === '1' ? 100_000 : 8_000;
const START_MS = 1_000_000;
/** More minutes than a case lasts. */
const NO_LIMIT_OF_DAY = 4_000;

type Case = Pick<TokensJob, 'limit' | 'minutesPerDay' | 'overrun' | 'calendarRate'> & {
  readonly name: string;
  /** Threads that are terminated, from the first on. */
  readonly dying: number;
};
const USUAL = { minutesPerDay: NO_LIMIT_OF_DAY, overrun: false, calendarRate: 0, dying: 0 };
const CASES: readonly Case[] = [
  { ...USUAL, name: '40 tokens', limit: 40 },
  { ...USUAL, name: '10,000 tokens', limit: 10_000 },
  { ...USUAL, name: '10^12 tokens', limit: 10 ** 12 },
  { ...USUAL, name: '1,000 tokens, calls use more than they hold', limit: 1_000, overrun: true },
  { ...USUAL, name: '10,000 tokens, days pass', limit: 10_000, calendarRate: 400, minutesPerDay: 2 },
  { ...USUAL, name: '10,000 tokens, threads die', limit: 10_000, dying: 2 },
  { ...USUAL, name: '1,000 tokens, threads die and use more', limit: 1_000, overrun: true, dying: 3 },
];

interface ScopeOfCase {
  readonly name: string;
  readonly scope: Scope;
  readonly limits: TokenLimits;
  readonly has: (key: number) => boolean;
}

function scopesOf({ key, account, inner, outer }: ReturnType<typeof limitsOf>): ScopeOfCase[] {
  const keys = Array.from({ length: KEYS }, (_, index) => ({
    name: `key ${index}`,
    scope: { kind: 'key', index: asKeyIndex(index) } as const,
    limits: key,
    has: (of: number) => of === index,
  }));
  const accounts = Array.from({ length: ACCOUNTS }, (_, index) => ({
    name: `account ${index}`,
    scope: { kind: 'account', index: asAccountIndex(index) } as const,
    limits: account,
    has: (of: number) => accountOf(of) === index,
  }));
  const groups = Array.from({ length: GROUPS }, (_, index) => ({
    name: `group ${index}`,
    scope: { kind: 'group', index: asGroupIndex(index) } as const,
    limits: index === OUTER ? outer : inner,
    has: (of: number) => index === OUTER || innerOf(accountOf(of)) === index,
  }));
  return [...keys, ...accounts, ...groups];
}

function openLedger(job: Omit<TokensJob, 'thread' | 'log'>, clock: StampClock): Ledger {
  const ledger = new Ledger(job.buffers, clock);
  const limits = limitsOf(job);
  for (let group = GROUPS - 1; group >= 0; group--) {
    const options = group === OUTER ? {} : { parent: asGroupIndex(OUTER) };
    ledger.groups.open(asGroupIndex(group), group === OUTER ? limits.outer : limits.inner, options);
  }
  for (let account = 0; account < ACCOUNTS; account++) {
    ledger.openAccount(asAccountIndex(account), stateOf());
    ledger.setGroup(asAccountIndex(account), innerOf(account));
  }
  for (let key = 0; key < KEYS; key++) ledger.keys.open(asKeyIndex(key), limits.key);
  return ledger;
}

/** Calls of one thread; one that it did not end was released between the two stamps `released`. */
function readLog(
  shared: SharedArrayBuffer,
  released: readonly [number, number],
  dayOf: (ms: number) => number,
) {
  const log = new Float64Array(shared, 8);
  const calls: LoggedCall[] = [];
  /** What the call may hold or have used that the thread died in, by key. */
  const cut: { readonly key: number; readonly most: number; readonly used: number }[] = [];
  for (let n = 0; n < new Float64Array(shared, 0, 1)[0]!; n++) {
    const field = (name: number): number => log[n * LOG_FIELDS + name]!;
    const [key, held, used, asked, admitted] = [KEY, HELD, USED, ASKED, ADMITTED].map(field) as [
      number,
      number,
      number,
      number,
      number,
    ];
    const [ending, ended] = [field(ENDING), field(ENDED)];
    if (admitted === 0) {
      cut.push({ key, most: held, used: 0 });
      continue;
    }
    const [asksOn, admittedOn] = [dayOf(msOf(asked)), dayOf(msOf(admitted))];
    const day = asksOn === admittedOn ? asksOn : undefined;
    const call = { key, held, used, asked, admitted, day };
    if (ending === 0) calls.push({ ...call, used: 0, ending: released[0], ended: released[1] });
    else if (ended !== 0) calls.push({ ...call, ending, ended });
    else {
      cut.push({ key, most: Math.max(held, used), used });
      calls.push({ ...call, ending, ended: Infinity });
    }
  }
  return { calls, cut };
}

for (const { name, dying, ...work } of CASES) {
  void t.test(name, { timeout: 900_000 }, async (t) => {
    const seed = newSeed();
    const startMs = performance.now();
    const steering = new SharedArrayBuffer(STEERING_BYTES);
    const clock = new StampClock(steering, work.calendarRate);
    clock.pass(START_MS);
    const buffers = createLedgerBuffers({
      accountsMax: ACCOUNTS,
      callsInFlightMax: THREADS * SLOTS_PER_THREAD,
      keysMax: KEYS,
      groupsMax: GROUPS,
    });
    const job = { ...work, buffers, steering, threads: THREADS, attempts: ATTEMPTS, seed };
    const ledger = openLedger(job, clock);
    const logs = Array.from(
      { length: THREADS },
      () => new SharedArrayBuffer(8 * (1 + (ATTEMPTS + 1) * LOG_FIELDS)),
    );
    const workers = logs.map(
      (log, thread) =>
        new Worker(new URL('../fixtures/ledger-tokens.worker.js', import.meta.url), {
          workerData: { ...job, log, thread } satisfies TokensJob,
        }),
    );
    await Promise.all(workers.map((worker) => once(worker, 'message')));
    const reports = workers.slice(dying).map(async (worker) => {
      const [report] = (await once(worker, 'message')) as [TokensReport];
      return report;
    });
    const gate = new Int32Array(steering);
    Atomics.store(gate, GO, 1);
    Atomics.notify(gate, GO);

    const released: (readonly [number, number])[] = [];
    let releasedCalls = 0;
    for (let thread = 0; thread < dying; thread++) {
      await wait(40);
      await workers[thread]!.terminate();
      const before = clock.stamp();
      releasedCalls += ledger.releaseSlots(asCallSlot(thread * SLOTS_PER_THREAD), SLOTS_PER_THREAD);
      released.push([before, clock.stamp()]);
    }
    const refused = new Map<string, number>();
    for (const report of await Promise.all(reports)) {
      for (const [quota, times] of Object.entries(report.refused))
        refused.set(quota, (refused.get(quota) ?? 0) + times);
    }
    const hammeredMs = performance.now() - startMs;

    const calendar = new Calendar(SPECIFIED_TIMEZONE);
    const dayOf = (ms: number): number => calendar.dayAt(START_WALL_MS + ms * work.calendarRate).number;
    const threads = logs.map((log, thread) => readLog(log, released[thread] ?? [0, 0], dayOf));
    const calls = threads.flatMap((thread) => thread.calls);
    const cut = threads.flatMap((thread) => thread.cut);
    const today = dayOf(clock.monotonicMs());
    const random = randomBelow(seed);
    const faults: string[] = [];
    const most = { minute: 0, day: 0 };
    const scopes = scopesOf(limitsOf(job));
    for (const { name, limits, scope, has } of scopes) {
      const own = calls.filter(({ key }) => has(key));
      const judgement = judgeTokens(own, limits, random);
      faults.push(...judgement.faults.map((fault) => `${name}: ${fault}`));
      most.minute = Math.max(most.minute, judgement.mostOfMinute);
      most.day = Math.max(most.day, judgement.mostOfDay);

      // What the cut calls held stays, and what they used may be counted or not.
      const ownCut = cut.filter(({ key }) => has(key));
      const mayHold = ownCut.reduce((sum, call) => sum + call.most, 0);
      const mayUse = ownCut.reduce((sum, call) => sum + call.used, 0);
      const unsureDay = own.filter(({ day }) => day === undefined).reduce((sum, { used }) => sum + used, 0);
      const usedToday = own
        .filter(({ day, ended }) => day === today && ended !== Infinity)
        .reduce((sum, { used }) => sum + used, 0);
      const accountLimits = callScopes(limitsOf(job))[0]!.plan.quotas;
      for (const { quota, used, held } of ledger.useOf(
        scope,
        scope.kind === 'account' ? accountLimits : undefined,
      )) {
        if (quota === 'calls_in_flight') {
          if (held < 0n || held > ownCut.length) faults.push(`${name}: ${held} calls in flight at the end`);
          continue;
        }
        if (held < 0n || held > mayHold) faults.push(`${name}: ${held} of ${quota} held at the end`);
        if (quota !== 'tokens_per_day') continue;
        if (used < usedToday || used > usedToday + mayUse + unsureDay)
          faults.push(`${name}: ${used} of the day, of calls ${usedToday}`);
      }
      if (scope.kind !== 'account') continue;
      const { callsInFlight } = ledger.snapshot(scope.index);
      if (callsInFlight < 0 || callsInFlight > ownCut.length)
        faults.push(`${name}: ${callsInFlight} calls in flight at the end`);
    }
    t.same(faults.slice(0, 10), [], `seed ${seed}: no limit was passed, and the books are right`);

    clock.pass(60_000 + 2 * TICK_MS);
    for (const { name, scope, limits, has } of scopes) {
      const cutHere = cut.filter(({ key }) => has(key)).reduce((sum, call) => sum + call.most, 0);
      const uses = ledger.useOf(
        scope,
        scope.kind === 'account' ? callScopes(limitsOf(job))[0]!.plan.quotas : undefined,
      );
      const minute = uses.find(({ quota }) => quota === 'tokens_per_minute')!;
      if (minute.used + minute.held > cutHere || minute.limit !== BigInt(limits.tokensPerMinute))
        t.fail(`${name}: ${minute.used} used and ${minute.held} held after a minute`);
    }
    t.comment(
      `${calls.length} calls admitted, ${cut.length} cut, ${releasedCalls} released for the dead, ` +
        `${(100 * most.minute).toFixed(1)} % of a minute, ${(100 * most.day).toFixed(1)} % of a day, refused ` +
        `${JSON.stringify(Object.fromEntries(refused))}, ${hammeredMs.toFixed(0)} ms, with the judge ` +
        `${(performance.now() - startMs).toFixed(0)} ms`,
    );
    t.ok(calls.length > (THREADS * ATTEMPTS) / 50, 'enough calls to say something');
    t.ok(most.minute > 0.5, 'the limit of a minute was pressed');
    t.ok((refused.get('tokens_per_minute') ?? 0) > 100, 'tokens_per_minute refused');
    if (dying === 0) t.ok((refused.get('calls_in_flight') ?? 0) > 100, 'calls_in_flight refused');
    if (work.minutesPerDay !== NO_LIMIT_OF_DAY) {
      t.ok((refused.get('tokens_per_day') ?? 0) > 100, 'tokens_per_day refused');
      t.ok(most.day > 0.5, 'the limit of a day was pressed');
      t.ok(new Set(calls.map(({ day }) => day)).size > 5, 'days passed');
    }
  });
}
