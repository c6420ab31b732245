/**
 * Tokens of the minute, and what a group may use in a month, are those of all together: of the four processes
 * of one host, and of two hosts on one Redis.
 */
import t, { type Test } from 'tap';
import { decimalOf } from '#src/core/money.js';
import { asPicoUnits } from '#src/core/units.js';
import type { GroupView } from '#src/admin/views.js';
import { startBed } from '../support/bed.js';
import { mostSurelyWithin } from '../support/call-span.js';
import { CALL_COST, CALL_TOKENS, Caller, callsOf, rejectionsOf } from '../support/crash-load.js';
import { eventually, type Gateway, knownEverywhere } from '../support/gateway.js';
import { startHosts } from '../support/hosts.js';
import { NO_REDIS } from '../support/redis-server.js';

const MINUTE_MS = 60_000;
const CONNECTIONS = 8;
/** An account has used up what it may when it was refused so often by each host. */
const REFUSED_ENOUGH = 40;
/** At most so much of a limit is left unused: what a call holds beyond what it uses among it. */
const SHARE = 0.9;
const TOKENS_PER_MINUTE = 8_000;
const CALLS_PER_MONTH = 300;
/** Of a call: more than it costs by its worst case. */
const SPENT_CALLS = 400n;

const SETTINGS = {
  flush_interval_ms: 200,
  plans: [
    {
      id: 'tokens',
      requests_per_minute: 100_000,
      calls_per_day: 1_000_000,
      tokens_per_minute: TOKENS_PER_MINUTE,
    },
  ],
};

/** Two accounts in a group, called at each gateway until every one of them refuses. */
async function useUp(gateways: readonly Gateway[], customers: readonly { key: string }[]): Promise<Caller[]> {
  const callers = gateways.flatMap(({ port }) =>
    customers.map(({ key }) => new Caller({ port, key, connections: CONNECTIONS, refusedPauseMs: 20 })),
  );
  await eventually(
    'what is left is refused',
    () => (callers.every((caller) => (caller.refused.get(429) ?? 0) >= REFUSED_ENOUGH) ? true : undefined),
    50_000,
  );
  for (const caller of callers) caller.stop();
  await Promise.all(callers.map(({ done }) => done));
  return callers;
}

async function holds(t: Test, gateways: readonly Gateway[]): Promise<void> {
  const { admin } = gateways[0]!;
  const spend = decimalOf(asPicoUnits(CALL_COST * SPENT_CALLS));
  const calling = await admin.group({ calls_per_month: CALLS_PER_MONTH });
  const spending = await admin.group({ spend_per_month: spend });
  const callers = [await admin.customer({ group: calling }), await admin.customer({ group: calling })];
  const spenders = [await admin.customer({ group: spending }), await admin.customer({ group: spending })];
  const talker = await admin.customer({ plan: 'tokens' });
  for (const gateway of gateways)
    for (const { key } of [...callers, ...spenders, talker]) await knownEverywhere(gateway, key);

  const [called, spent, talked] = await Promise.all([
    useUp(gateways, callers),
    useUp(gateways, spenders),
    useUp(gateways, [talker]),
  ]);
  const countOf = (all: readonly Caller[]): number =>
    all.reduce((sum, one) => sum + one.answeredMs.length, 0);
  for (const all of [called, spent, talked]) {
    t.equal(
      all.reduce((sum, { broken }) => sum + broken, 0),
      0,
    );
    t.same(rejectionsOf(all), [429]);
  }
  t.comment(`${countOf(called)} calls, ${countOf(spent)} paid, ${countOf(talked) * CALL_TOKENS} tokens`);
  t.ok(countOf(called) <= CALLS_PER_MONTH, `${countOf(called)} of ${CALLS_PER_MONTH} calls`);
  t.ok(countOf(called) >= CALLS_PER_MONTH * SHARE, `${countOf(called)} of ${CALLS_PER_MONTH} calls`);
  t.ok(BigInt(countOf(spent)) <= SPENT_CALLS, `${countOf(spent)} of ${SPENT_CALLS} paid`);
  t.ok(countOf(spent) >= Number(SPENT_CALLS) * SHARE, `${countOf(spent)} of ${SPENT_CALLS} paid`);
  const tokens = mostSurelyWithin(callsOf(talked), MINUTE_MS) * CALL_TOKENS;
  t.ok(tokens <= TOKENS_PER_MINUTE, `${tokens} tokens in a minute`);
  t.ok(tokens >= TOKENS_PER_MINUTE * SHARE, `${tokens} tokens in a minute`);

  const shown = await eventually('what is used is shown', async () => {
    const { quotas } = (await admin.send('GET', `/admin/v1/groups/${calling}`)).json() as GroupView;
    const use = quotas.calls_per_month;
    return Number(use?.used) === countOf(called) ? use : undefined;
  });
  t.equal(Number(shown.limit), CALLS_PER_MONTH);
}

void t.test('four processes', { timeout: 300_000 }, async (t) => {
  const { gateway } = await startBed(t, { ...SETTINGS, processes: 4 });
  await holds(t, [gateway]);
  t.equal(await gateway.stop(), 0);
});

void t.test('two hosts', { ...NO_REDIS, timeout: 300_000 }, async (t) => {
  const { hosts } = await startHosts(t, { count: 2, settings: SETTINGS });
  await holds(
    t,
    hosts.map(({ gateway }) => gateway),
  );
});
