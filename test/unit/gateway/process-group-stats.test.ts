/** What the sum over all gateways is if not all is known. */
import t from 'tap';
import type { GroupSnapshot, Snapshot } from '#src/gateway/messages.js';
import { ProcessGroupStats } from '#src/gateway/process-group-stats.js';
import type { AccountReport } from '#src/telemetry/account-history.js';

const reportOf = (source: string): AccountReport => ({ source, spans: [] });

function statsOf(all: GroupSnapshot | undefined): ProcessGroupStats {
  const own: Snapshot = { metrics: [], accounts: [reportOf('own')] };
  return new ProcessGroupStats({
    slot: 1,
    read: (what) => Promise.resolve({ [what]: own[what as 'metrics'] }),
    readAll: () => Promise.resolve(all),
  });
}

void t.test('a supervisor that does not answer: no sum, rather than one without the others', async (t) => {
  const stats = statsOf(undefined);
  await t.rejects(stats.metrics(), /did not answer/);
  await t.rejects(stats.status(), { code: 'overloaded', retryAfterSeconds: 5, message: /did not answer/ });
  await t.rejects(stats.accounts(), /did not answer/);
});

void t.test('a supervisor that does not know this gateway yet: it counts beside the others', async (t) => {
  const others = { members: [{ slot: 0, reading: { accounts: [reportOf('other')] } }], ended: {} };
  t.same(
    (await statsOf(others).accounts()).map(({ source }) => source),
    ['other', 'own'],
  );
});

void t.test('a gateway that has sent nothing yet is left out; this one never is', async (t) => {
  const others = { members: [{ slot: 0, reading: {} }], ended: {} };
  t.same(
    (await statsOf(others).accounts()).map(({ source }) => source),
    ['own'],
  );
  t.same((await statsOf(others).metrics())({ name: 'calls' } as never), []);
  await t.rejects(statsOf(others).status(), /gives the kind/, 'no other gateway stands in for this one');
});
