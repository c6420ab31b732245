/**
 * A call that is refused by the coordinator is told which quota is used up, whatever other leases of this
 * process are empty for a moment: each quota with each other one, and the phases as a listener runs them,
 * with the real lease manager between them and a coordinator that has plenty of all but one quota.
 */
import t from 'tap';
import type { LeaseAsk as Question, LeaseChannel, LeaseEnd } from '#src/channel/lease-channel.js';
import type { ErrorRecord } from '#src/core/errors.js';
import { Calendar } from '#src/core/calendar.js';
import { NO_QUOTAS, type QuotaLimits } from '#src/core/quotas.js';
import {
  asAccountIndex,
  asCallSlot,
  asGroupIndex,
  asKeyIndex,
  asModelScopeIndex,
  asPicoUnits,
} from '#src/core/units.js';
import { CoordinatorClock } from '#src/ledger/coordinator-clock.js';
import { createLedgerBuffers, EXTENDED_QUOTAS } from '#src/ledger/layout.js';
import { Leases } from '#src/ledger/leases.js';
import { Ledger } from '#src/ledger/ledger.js';
import type { RefusedQuota } from '#src/ledger/quota-rejections.js';
import { AdmissionAsk } from '#src/request/admission-lease.js';
import { admit } from '#src/request/admit.js';
import type { CallContext, ListenerContext } from '#src/request/context.js';
import { passRateLimit } from '#src/request/rate-limit.js';
import type { Coordinator, LeaseAsk, LeaseReply, StockName } from '#src/sharing/coordinator.js';
import { LeaseManager } from '#src/sharing/lease-manager.js';
import { EventTime } from '../../support/lease-world.js';
import { chatCall, knownCaller, openHouse } from './support.js';
import { NOTHING_FLUSHED } from '../../fixtures/day-leases.js';

const ACCOUNT = asAccountIndex(0);
const KEY = asKeyIndex(0);
const GROUP = asGroupIndex(0);
const MODEL = 0;
const LIMITS: QuotaLimits = {
  requestsPerMinute: 1_001,
  tokensPerMinute: 1_000_002,
  callsInFlight: 1_003,
  callsPerDay: 1_004,
  tokensPerDay: 1_000_005,
  callsPerMonth: 1_006,
  tokensPerMonth: 1_000_007,
  spendPerDay: asPicoUnits(10n ** 14n + 8_000n),
  spendPerMonth: asPicoUnits(10n ** 14n + 9_000n),
};
const PLAN = {
  requestsPerMinute: LIMITS.requestsPerMinute!,
  callsPerDay: LIMITS.callsPerDay!,
  callsInFlightMax: LIMITS.callsInFlight!,
  quotas: LIMITS,
  modelLimits: [LIMITS],
};
const STOCKS = [...EXTENDED_QUOTAS, 'calls_per_day'] as const;
const SCOPES = ['key', 'account', 'model', 'group'] as const;
/** All that admission takes of, and what the rate-limit phase takes of. */
const ADMISSION: Quota[] = [
  ...SCOPES.flatMap((kind) => STOCKS.map((quota): Quota => ({ kind, quota }))),
  { kind: 'account', quota: 'balance' },
  { kind: 'model', quota: 'requests_per_minute' },
];
const MONEY = ADMISSION.filter(({ quota }) => quota === 'balance' || quota.startsWith('spend'));
const MINUTES = (['key', 'account', 'group'] as const).map((kind): Quota => ({
  kind,
  quota: 'requests_per_minute',
}));

type Quota = Pick<RefusedQuota, 'quota'> & { readonly kind: (typeof SCOPES)[number] };
const textOf = ({ kind, quota }: Quota): string => `${quota} of the ${kind}`;
const isSame = (one: Quota, kind: string, quota: string): boolean => one.kind === kind && one.quota === quota;

/** A coordinator that grants all that is wanted, but for one quota. A scope's name is its kind. */
function coordinatorWithout(time: EventTime, usedUp: Quota | undefined): Coordinator {
  const wallMs = () => time.clock.wallMs();
  const replyTo = ({ scope, minute, stocks = {} }: LeaseAsk): LeaseReply => {
    const isUsedUp = (quota: string) => usedUp !== undefined && isSame(usedUp, scope, quota);
    const grants = Object.entries(stocks).map(([name, { least, most, period }]) => {
      // An ask wants as much again as calls hold, and here they hold ever more.
      const granted = isUsedUp(name) ? 0n : most < 10n ** 15n ? most : least;
      const remaining = isUsedUp(name) ? 0n : 1_000n;
      return [name, { granted, remaining, heldByOthers: false, period, freeInMs: 500 }] as const;
    });
    const granted = isUsedUp('requests_per_minute') ? 0 : Math.min(minute?.most ?? 0, minute?.limit ?? 0);
    return {
      ...(minute && {
        minute: { granted, remaining: granted, heldByOthers: false, tick: 1, validMs: 9_000, freeInMs: 500 },
      }),
      stocks: Object.fromEntries(grants),
    };
  };
  return {
    join: () => Promise.resolve(wallMs()),
    exchange: (asks) =>
      new Promise((resolve) => {
        time.after(10, () => resolve({ wallMs: wallMs(), replies: asks.map(replyTo) }));
      }),
    view: () => Promise.resolve([]),
    leave: () => Promise.resolve(),
    close: () => Promise.resolve(),
  };
}

/** A listener and its process's lease manager. `removesGroupLimits`: while the coordinator replies. */
function createWorld(
  usedUp: Quota | undefined,
  lowBalance: 'refuse' | 'clamp' = 'refuse',
  removesGroupLimits = false,
) {
  const time = new EventTime();
  const buffers = createLedgerBuffers({
    ...{ accountsMax: 1, callsInFlightMax: 20, keysMax: 1, groupsMax: 1, shared: true },
  });
  const clock = new CoordinatorClock(time.clock, buffers.coordinatorAheadMs!);
  const leases = new Leases(buffers, clock);
  const ledger = new Ledger(buffers, clock);
  ledger.keys.open(KEY, LIMITS);
  ledger.groups.open(GROUP, LIMITS);
  ledger.setGroup(ACCOUNT, GROUP);
  const model = asModelScopeIndex(ledger.modelScopes.slotOf(ACCOUNT, MODEL)!);
  const scopeOf = (kind: Quota['kind']) => {
    if (kind === 'account') return { kind, index: ACCOUNT };
    if (kind === 'key') return { kind, index: KEY };
    return kind === 'group' ? { kind, index: GROUP } : { kind, index: model };
  };
  const wordsOf = (kind: Quota['kind'], name: StockName) => {
    if (name !== 'balance') return leases.stockOf(scopeOf(kind), name);
    return kind === 'account' ? leases.balanceOf(ACCOUNT, NOTHING_FLUSHED) : undefined;
  };
  const manager = new LeaseManager({
    coordinator: coordinatorWithout(time, usedUp),
    clock,
    timers: { soon: (act) => void time.after(0, act), after: (ms, act) => time.after(ms, act) },
    random: () => 0.5,
    calendar: new Calendar(),
    addressOf: ({ kind, index }) => {
      if (kind === 'upstream') return undefined;
      return {
        ...{ kind, index, scopeId: kind, minute: leases[`${kind}s`] },
        wordsOf: (name) => leases.stockOf(scopeOf(kind), name),
        money: kind === 'account' ? leases.balanceOf(ACCOUNT, NOTHING_FLUSHED) : undefined,
        limits: () => LIMITS,
      };
    },
    groupsOf: () => [GROUP],
    onCalendar: (wallMs, hostMs) => clock.setDifference(wallMs, hostMs),
    onContact: () => undefined,
  });
  let empty: Quota | undefined;
  /** Other calls of the process take all that is here of the quota `empty`. */
  const takeEmpty = (): void => {
    if (empty === undefined) return;
    const { kind, quota } = empty;
    if (quota === 'requests_per_minute') leases[`${kind}s`].takeBackMinute(scopeOf(kind).index as never);
    else wordsOf(kind, quota)?.takeBack(10n ** 18n);
  };
  const house = openHouse({ lowBalance });
  const listener: ListenerContext = {
    ...house.listener,
    ...{ clock, ledger },
    leases: {
      ask: async ({ scopes, need }: Question): Promise<LeaseEnd> => {
        const end = await manager.wait(scopes, need);
        takeEmpty();
        if (removesGroupLimits) ledger.groups.open(GROUP, NO_QUOTAS);
        return end;
      },
    } as unknown as LeaseChannel,
  };
  void manager.start();

  /** How a new call's phase ends. The lease of `emptied` is empty whenever a reply comes to the listener. */
  return async (phase: Phase, emptied?: Quota) => {
    empty = emptied;
    takeEmpty();
    const context = knownCaller(house, PLAN, {});
    context.caller = { ...context.caller!, account: ACCOUNT, key: KEY };
    // Until no denial of the call before holds.
    await time.run(300);
    const sinceMs = time.nowMs;
    let end: { readonly rejection: ErrorRecord | undefined; readonly afterMs: number } | undefined;
    void phase(context, listener).then((rejection) => {
      end = { rejection, afterMs: time.nowMs - sinceMs };
    });
    for (let ms = 0; ms < 5_000 && end === undefined; ms += 20) await time.run(20);
    const { code, detail, message } = end?.rejection ?? {};
    const text = message?.replace(/Retry after .*/, '');
    const { rateLimit, tokenLimit } = context;
    const limits = { limit: rateLimit?.limit, tokenLimit: tokenLimit?.limit };
    return { code, detail, text, ...limits, afterMs: end?.afterMs };
  };
}

type Phase = (context: CallContext, listener: ListenerContext) => Promise<ErrorRecord | undefined>;

/** How the admission of a call ends, as Intake calls it. */
const admission: Phase = async (context, listener) => {
  const call = chatCall({ max_tokens: 10 });
  const ask = new AdmissionAsk(context, listener, listener.leases!);
  for (;;) {
    const rejection = admit(context, call, listener);
    const wait = rejection && ask.askAgain(call);
    if (wait === undefined) return rejection;
    const final = await wait;
    if (final !== undefined) return final;
  }
};

/** How the rate-limit phase ends; the body has come meanwhile. */
const rateLimit: Phase = (context, listener) =>
  new Promise((resolve) => {
    const intake = {
      isOver: false,
      takeIdempotencyKey: () => undefined,
      stopReading: () => undefined,
      reject: resolve,
      onBody: () => resolve(undefined),
      onLargeBody: () => resolve(undefined),
      onTooLarge: () => resolve(undefined),
    };
    passRateLimit(intake, context, undefined, undefined, listener)?.onBody(Buffer.from('{}'));
  });

for (const [name, phase, quotas, others, lowBalance] of [
  ['admission', admission, ADMISSION, ADMISSION, 'refuse'],
  ['admission that may lower the output', admission, MONEY, ADMISSION, 'clamp'],
  ['the rate-limit phase', rateLimit, MINUTES, MINUTES, 'refuse'],
] as const) {
  void t.test(`${name}: the refusal names what is used up, each quota with each other one`, async (t) => {
    const texts = new Set<unknown>();
    for (const usedUp of quotas) {
      const endOf = createWorld(usedUp, lowBalance);
      const { afterMs, ...expected } = await endOf(phase);
      t.type(expected.text, 'string', `${textOf(usedUp)}: after ${afterMs} ms`);
      texts.add(expected.text);
      for (const empty of others) {
        if (isSame(empty, usedUp.kind, usedUp.quota)) continue;
        const end = await endOf(phase, empty);
        if (JSON.stringify({ ...expected, afterMs: end.afterMs }) !== JSON.stringify(end))
          t.fail(`${textOf(usedUp)} is used up, ${textOf(empty)} is empty here`, { end, expected });
      }
    }
    t.equal(texts.size, quotas.length, 'each quota has a text of its own');
  });
}

void t.test('what is empty here again and again, and refused by nobody, is no limit', async (t) => {
  for (const empty of ADMISSION) {
    const end = await createWorld(undefined)(admission, empty);
    t.match(end, { code: 'overloaded', detail: 'lease_late' }, textOf(empty));
    t.match(end, { limit: undefined, tokenLimit: undefined }, 'nor in the headers');
    t.ok(end.afterMs! < 2_000, `${end.afterMs} ms`);
  }
});

void t.test('a refusal by a limit that was removed meanwhile names no other limit', async (t) => {
  for (const [phase, quotas] of [
    [admission, STOCKS],
    [rateLimit, ['requests_per_minute']],
  ] as const) {
    for (const quota of quotas) {
      const endOf = createWorld({ kind: 'group', quota }, 'refuse', true);
      const end = await endOf(phase, { kind: 'account', quota });
      t.match(end, { code: 'overloaded', detail: 'lease_late' }, quota);
    }
  }
});

void t.test('who was refused by the minute of a model that has come back since may come at once', (t) => {
  const time = new EventTime();
  const buffers = createLedgerBuffers({
    ...{ accountsMax: 1, callsInFlightMax: 1, keysMax: 1, groupsMax: 1, shared: true },
  });
  const clock = new CoordinatorClock(time.clock, buffers.coordinatorAheadMs!);
  const ledger = new Ledger(buffers, clock);
  const model = asModelScopeIndex(ledger.modelScopes.slotOf(ACCOUNT, MODEL)!);
  const nowMs = clock.monotonicMs();
  new Leases(buffers, clock).models.addMinute(model, nowMs + 9_000, 5, 0, nowMs);
  const rule = { modelIndex: MODEL, limits: { ...NO_QUOTAS, requestsPerMinute: 10 } };
  const scopes = { account: ACCOUNT, plan: { ...PLAN, quotas: NO_QUOTAS }, key: undefined, model: rule };
  const needs = { hold: asPicoUnits(0n), tokens: 1 };
  const rejection = ledger.admit(asCallSlot(0), scopes, needs);
  t.match(rejection, { quota: 'calls_in_flight' }, 'other calls hold all slots that are here');
  const refused = [{ kind: 'model', index: model, quota: 'requests_per_minute' }] as const;
  const named = ledger.rejections.refusalOf(rejection!, refused, scopes, needs);
  t.match(named, { kind: 'model', index: MODEL, quota: 'requests_per_minute', left: 0n });
  t.ok(named!.resetsMs - clock.wallMs() <= 1_000, `in ${named!.resetsMs - clock.wallMs()} ms`);
  t.end();
});
