/** Which groups the metrics show, and how often they are read. */
import t from 'tap';
import { NO_QUOTAS } from '#src/core/quotas.js';
import type { GroupRecord } from '#src/registry/account-record.js';
import type { GroupStatement } from '#src/registry/groups.js';
import type { Registry, RegistryService } from '#src/registry/registry.js';
import { groupQuotasOf, GROUPS_SHOWN_MAX } from '#src/gateway/primary-metrics.js';
import { ListLog } from '../store/support.js';

const LIMITS = { ...NO_QUOTAS, tokensPerDay: 1_000 };

function world(count: number, showsNames = false) {
  const records = Array.from({ length: count }, (_, n) => ({
    id: `grp_${n}`,
    name: `group ${n}`,
    limits: n === 0 ? NO_QUOTAS : LIMITS,
  }));
  let reads = 0;
  let nowMs = 0;
  let broken = false;
  const find = (id: string): GroupStatement => {
    const n = Number(id.slice(4));
    const use = { quota: 'tokens_per_day' as const, limit: 1_000n, held: 1n, resetsMs: undefined };
    return {
      record: records[n] as GroupRecord,
      path: [],
      accounts: 0,
      groups: 0,
      quotas: [{ ...use, used: BigInt(n) }],
    };
  };
  const service: Pick<RegistryService, 'read'> = {
    read: (work) => {
      if (broken) throw new Error('not to be had');
      reads += 1;
      return work({ groups: { find } } as unknown as Registry);
    },
  };
  let isDamaged = false;
  const read = function* () {
    yield* records;
    if (isDamaged) throw new Error('a row is damaged');
  };
  const log = new ListLog();
  const quotas = groupQuotasOf({ service, records: read, showsNames, monotonicMs: () => nowMs, log });
  return {
    quotas,
    log,
    reads: () => reads,
    pass: (ms: number) => void (nowMs += ms),
    break: () => void (broken = true),
    damage: (damaged: boolean) => void (isDamaged = damaged),
  };
}

void t.test('the groups nearest to a limit', async (t) => {
  const { quotas, reads } = world(700);
  await quotas.refresh();
  t.equal(reads(), 0, 'another gateway tells');
  quotas.turnOn();
  await Promise.all([quotas.refresh(), quotas.refresh()]);
  t.equal(reads(), 2, 'two pages, once');
  t.equal(quotas.value.length, GROUPS_SHOWN_MAX);
  t.same(quotas.value[0], { group: 'grp_699', name: '', quota: 'tokens_per_day', ratio: 0.7 });
  t.equal(quotas.value.at(-1)?.group, 'grp_600');
  quotas.turnOff();
  t.same(quotas.value, []);
});

void t.test('read every ten seconds, with names if they may be shown', async (t) => {
  const { quotas, reads, pass, break: breakIt } = world(2, true);
  quotas.turnOn();
  for (const ms of [0, 9_999, 1]) {
    pass(ms);
    await quotas.refresh();
  }
  t.equal(reads(), 2);
  t.same(quotas.value, [{ group: 'grp_1', name: 'group 1', quota: 'tokens_per_day', ratio: 0.002 }]);
  breakIt();
  pass(10_000);
  await quotas.refresh();
  t.equal(quotas.value.length, 1, 'what was read last stays');
});

void t.test('a row that cannot be read leaves the metrics without new samples, and no more', async (t) => {
  const { quotas, pass, damage, reads, log } = world(2);
  quotas.turnOn();
  await quotas.refresh();
  pass(10_000);
  damage(true);
  await t.resolves(quotas.refresh());
  t.equal(quotas.value.length, 1, 'what was read last stays');
  pass(10_000);
  await quotas.refresh();
  t.same(log.lines, ['warn the metrics show old values, which cannot be read now'], 'said once');
  t.same(log.fields, [{ values: 'quotas of groups', error: 'a row is damaged' }]);
  damage(false);
  pass(9_999);
  await quotas.refresh();
  t.equal(reads(), 1, 'a failed read counts too: scrapes need no token');
  pass(1);
  await quotas.refresh();
  t.equal(reads(), 2);
  damage(true);
  pass(10_000);
  await quotas.refresh();
  t.equal(log.lines.length, 2, 'said again after it could be read');
});
