/** Which stripe is whose. What a page has of accounts: shared balances, and none if a row is damaged. */
import t, { type Test } from 'tap';
import { GatewayMetrics, type ScrapedParts } from '#src/gateway/gateway-metrics.js';
import type { Registry } from '#src/registry/registry.js';
import { StoreError } from '#src/store/store-file.js';
import { emptyHistogram } from '#src/telemetry/histogram.js';
import { createLogSwitch } from '#src/telemetry/log-switch.js';
import { SOUND_YAML, worldOf } from '../config/support.js';

type List = () => { readonly items: readonly object[]; readonly next: undefined };

const ACCOUNT = { record: { id: 'acct_1', name: 'one' }, available: 2n, spent: 1n, callsToday: 7 };

function metricsOf(t: Test): GatewayMetrics {
  const yaml = `${SOUND_YAML}metrics: { account_labels: true }\n`;
  const { settings } = worldOf(t, { 'tollgate.yaml': yaml }).load();
  const metrics = new GatewayMetrics(settings, createLogSwitch(), { useOf: () => [] });
  t.teardown(() => metrics.close());
  return metrics;
}

function scrapeOf(t: Test, list: List, sharedBalances?: ScrapedParts['sharedBalances']) {
  const accounting = {
    state: { unflushedAccounts: 3 },
    load: { flush: { durations: emptyHistogram([1, 2]), errors: 0, lagMs: 0 }, journalFills: [0] },
  };
  return metricsOf(t).scrapeOf({
    registry: { catalog: { models: [] }, accounts: { list } } as unknown as Registry,
    accounting: accounting as unknown as ScrapedParts['accounting'],
    groupQuotas: { refresh: () => Promise.resolve(), value: [] },
    sharedBalances,
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
}

void t.test('the stripes of threads are those that their names have', (t) => {
  const metrics = metricsOf(t);
  const stripes = [metrics.threadOfListener(0), metrics.firstWorkerThread, metrics.tracesThread];
  t.same(
    stripes.map((stripe) => metrics.threads[stripe]),
    ['listener-0', 'worker-0', 'traces'],
  );
  t.end();
});

void t.test('a row of an account that cannot be read costs the samples of accounts alone', async (t) => {
  let isDamaged = false;
  const metrics = scrapeOf(t, () => {
    if (isDamaged) throw new StoreError('damaged', 'a row of an account is damaged');
    return { items: [ACCOUNT], next: undefined };
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

void t.test('a shared balance is that of all, or left out while it is not known', async (t) => {
  const value = new Map<string, bigint>();
  let refreshes = 0;
  const refresh = () => Promise.resolve(void (refreshes += 1));
  const metrics = scrapeOf(t, () => ({ items: [ACCOUNT], next: undefined }), { refresh, value });
  const samplesOf = async (): Promise<string[]> => {
    const { body } = await metrics.render('prometheus');
    return body.toString().match(/^tollgate_account_.*$/gm) ?? [];
  };
  const labels = '{account="acct_1",account_name="one"}';
  const ofHost = [`tollgate_account_spent_total${labels} 1e-12`, `tollgate_account_calls_today${labels} 7`];
  t.same(await samplesOf(), ofHost);
  value.set('acct_1', 500_000_000_000n);
  t.same(await samplesOf(), [`tollgate_account_balance${labels} 0.5`, ...ofHost]);
  t.equal(refreshes, 2);
});
