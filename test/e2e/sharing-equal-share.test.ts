/**
 * One of two hosts is cut off for so long that it lives on its equal share: it serves no more than half of the limit, of which an
 * account that had used up its minute gets nothing (no money was leased when the cut came), and the other serves the other half.
 * Minutes: `npm run test:sharing`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { SHARE_BEGINS_MS } from '#src/sharing/equal-share.js';
import type { SharingStatus } from '#src/telemetry/status-document.js';
import { mostSurelyWithin } from '../support/call-span.js';
import { Crowd } from '../support/crowd.js';
import { checkError } from '../support/error-answer.js';
import { eventually } from '../support/gateway.js';
import { startHosts, type Host } from '../support/hosts.js';
import { NO_REDIS } from '../support/redis-server.js';

const LIMIT = 60;
const SHARE = LIMIT / 2;
const MINUTE_MS = 60_000;
/** A window and a little more. */
const PHASE_MS = MINUTE_MS + 5_000;

const SETTINGS = {
  sharing: { on_authority_loss: 'equal_share', hosts: 2 },
  plans: [{ id: 'sixty', requests_per_minute: LIMIT, calls_per_day: 1_000_000 }],
};

const SKIPPED =
  process.env.TOLLGATE_SHARING_FULL === undefined ? { skip: 'minutes: npm run test:sharing' } : NO_REDIS;

async function stateOf({ gateway }: Host): Promise<string> {
  const status = await gateway.admin.send('GET', '/admin/v1/status');
  return (status.json() as { readonly sharing: SharingStatus }).sharing.state;
}

void t.test('a host on its equal share', { ...SKIPPED, timeout: 900_000 }, async (t) => {
  const { hosts } = await startHosts(t, { count: 2, settings: SETTINGS });
  const [kept, cut] = hosts as [Host, Host];
  const customer = await kept.gateway.admin.customer({ plan: 'sixty' });
  await eventually('the key at the other host', async () => {
    const { status } = await cut.gateway.request(customer.key, { method: 'GET', path: '/v1/models' });
    return status === 200 ? true : undefined;
  });
  const crowds: Crowd[] = [];
  /** Calls at both hosts until `end`. */
  const phase = async (what: string, end: () => Promise<unknown>): Promise<Crowd> => {
    const crowd = new Crowd(hosts, customer);
    crowds.push(crowd);
    await end();
    await crowd.stop();
    for (const line of crowd.lines(what)) t.comment(line);
    return crowd;
  };
  const answeredAt = (crowd: Crowd, host: number): number => crowd.callers[host]!.answeredMs.length;

  await phase('together', () => sleep(5_000));
  cut.wire.set('cut');
  await phase('cut off, before its share', async () => {
    await sleep(SHARE_BEGINS_MS / 2);
    checkError(t, await cut.gateway.chat(customer.key, 'Hello'), 'overloaded', 'without share or lease');
    await eventually(
      'its share',
      async () => ((await stateOf(cut)) === 'alone' ? true : undefined),
      2 * SHARE_BEGINS_MS,
    );
  });
  const alone = await phase('on its share', () => sleep(PHASE_MS));
  // The phase is longer than a window by less than a tenth.
  t.ok(answeredAt(alone, 1) <= 1.1 * SHARE, `${answeredAt(alone, 1)} at the host that is alone`);
  t.ok(answeredAt(alone, 0) >= 0.8 * SHARE, `${answeredAt(alone, 0)} at the other`);
  cut.wire.set('open');
  const after = await phase('together again', async () => {
    await eventually('it is back', async () => ((await stateOf(cut)) === 'connected' ? true : undefined));
    await sleep(PHASE_MS);
  });
  t.ok(after.answered >= SHARE, `${after.answered} when it is back`);
  const most = mostSurelyWithin(
    crowds.flatMap(({ calls }) => calls),
    MINUTE_MS,
  );
  t.ok(most <= LIMIT, `${most} of ${LIMIT} in a minute at the most`);
  t.equal(
    crowds.reduce((sum, { broken }) => sum + broken, 0),
    0,
  );
});
