/**
 * What two hosts can use of a limit that they share over Redis in three minutes: with as many calls at both,
 * and with nearly all of them at one. `npm run test:sharing`; the figures are in docs/sharing.md.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { mostSurelyWithin } from '../support/call-span.js';
import { Crowd } from '../support/crowd.js';
import { eventually } from '../support/gateway.js';
import { startHosts } from '../support/hosts.js';
import { NO_REDIS } from '../support/redis-server.js';

const SKIPPED =
  process.env.TOLLGATE_SHARING_FULL === undefined ? { skip: 'minutes: npm run test:sharing' } : NO_REDIS;
const LIMIT = 300;
const MINUTES = 3;
const MINUTE_MS = 60_000;
const SETTINGS = { plans: [{ id: 'shared', requests_per_minute: LIMIT, calls_per_day: 1_000_000 }] };

void t.test('a limit of 300 a minute at two hosts', { ...SKIPPED, timeout: 400_000 }, async (t) => {
  const { hosts } = await startHosts(t, { count: 2, settings: SETTINGS });
  const { admin } = hosts[0]!.gateway;
  const customers = [await admin.customer({ plan: 'shared' }), await admin.customer({ plan: 'shared' })];
  for (const { key } of customers)
    await eventually('the key at the other host', async () => {
      const { status } = await hosts[1]!.gateway.request(key, { method: 'GET', path: '/v1/models' });
      return status === 200 ? true : undefined;
    });
  const [even, uneven] = customers as [(typeof customers)[0], (typeof customers)[0]];
  // Of the second, one call in ten is made at the other host.
  const crowds = [
    [new Crowd(hosts, even, 2, 250)],
    [new Crowd([hosts[0]!], uneven, 4, 250), new Crowd([hosts[1]!], uneven, 1, 600)],
  ];
  await sleep(MINUTES * MINUTE_MS);
  await Promise.all(crowds.flat().map((crowd) => crowd.stop()));
  for (const [at, [name, least]] of [['even', 0.96] as const, ['uneven', 0.93] as const].entries()) {
    const calls = crowds[at]!.flatMap((crowd) => crowd.calls);
    const most = mostSurelyWithin(calls, MINUTE_MS);
    const share = calls.length / (LIMIT * MINUTES);
    t.comment(
      `${name}: ${calls.length} of ${LIMIT * MINUTES}, ${(share * 100).toFixed(1)} %, ${most} at most`,
    );
    t.ok(most <= LIMIT, `${most} of ${LIMIT}`);
    t.ok(share >= least, `${name}: ${share}`);
  }
});
