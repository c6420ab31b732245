/** A page of metrics while a row of the registry is damaged. */
import t from 'tap';
import { GatewayMetrics, type ScrapedParts } from '#src/gateway/gateway-metrics.js';
import type { Registry } from '#src/registry/registry.js';
import { StoreError } from '#src/store/store-file.js';
import { emptyHistogram } from '#src/telemetry/histogram.js';
import { createLogSwitch } from '#src/telemetry/log.js';
import { SOUND_YAML, worldOf } from '../config/support.js';

void t.test('a row of an account that cannot be read costs the samples of accounts alone', async (t) => {
  const yaml = `${SOUND_YAML}metrics: { account_labels: true }\n`;
  const { settings } = worldOf(t, { 'tollgate.yaml': yaml }).load();
  const metrics = new GatewayMetrics(settings, createLogSwitch(), { useOf: () => [] });
  t.teardown(() => metrics.close());
  let isDamaged = false;
  const account = { record: { id: 'acct_1', name: 'one' }, available: 2n, spent: 1n, callsToday: 7 };
  const list = () => {
    if (isDamaged) throw new StoreError('damaged', 'a row of an account is damaged');
    return { items: [account], next: undefined };
  };
  const accounting = {
    state: { unflushedAccounts: 3 },
    load: { flush: { durations: emptyHistogram([1, 2]), errors: 0, lagMs: 0 }, journalFills: [0] },
  };
  metrics.attach({
    registry: { catalog: { models: [] }, accounts: { list } } as unknown as Registry,
    accounting: accounting as unknown as ScrapedParts['accounting'],
    groupQuotas: { refresh: () => Promise.resolve(), samples: [] },
    readGroup: undefined,
    bodies: { bytesInWork: () => 0, bytesInWorkMax: () => 1 },
    spans: () => undefined,
    logRecords: () => undefined,
    droppedCalls: () => ({ records: 0, contents: 0, rejected: 0 }),
    webhooks: () => undefined,
    credentials: () => [],
    cacheStoredBytes: () => 0,
    sharing: () => undefined,
  });
  const pageOf = async (): Promise<string> => (await metrics.render('prometheus')).body.toString();
  const ofAccount = 'tollgate_account_calls_today{account="acct_1",account_name="one"} 7';
  const whole = await pageOf();
  t.ok(whole.includes(ofAccount));
  isDamaged = true;
  const page = await pageOf();
  t.notOk(page.includes('account="acct_1"'));
  const familiesIn = (text: string): readonly string[] => text.match(/^# TYPE .*$/gm) ?? [];
  t.same(familiesIn(page), familiesIn(whole), 'every family is there');
  // Of a group the process with the admin interface asks for this, and writes the page.
  const snapshot = await metrics.read();
  const balances = snapshot.find(({ name }) => name === 'tollgate_account_balance');
  t.same(balances?.samples, []);
});
