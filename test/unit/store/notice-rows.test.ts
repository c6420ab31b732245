/** What was told is told once, by one of all processes, and the webhooks that wait are bounded. */
import { asBinary, open as openFile } from 'lmdb';
import t, { type Test } from 'tap';
import type { Environment } from '#src/store/environment.js';
import {
  type NoticeMark,
  NoticeRows,
  type WaitingWebhook,
  WEBHOOKS_WAITING_MAX,
} from '#src/store/notice-rows.js';
import { storePath } from '#src/store/store-file.js';
import { Store } from '#src/store/store.js';
import { openTables } from '#src/store/tables.js';

const DAY_MS = 86_400_000;
const mark = (percent: number, period = 'today', more: Partial<NoticeMark> = {}): NoticeMark => ({
  scopeId: 'acct_1',
  quota: 'calls_per_day',
  period,
  percent,
  endsMs: DAY_MS,
  ...more,
});
const NONE = (): undefined => undefined;

function open(t: Test, folder = t.testdir()): Store {
  const store = new Store(folder);
  t.teardown(() => store.close());
  return store;
}

void t.test('a threshold is told once in a period', async (t) => {
  const folder = t.testdir();
  const store = new Store(folder);
  const tell = (one: NoticeMark): boolean => store.notices.tell([one], NONE).told.length === 1;
  t.ok(tell(mark(80)));
  t.notOk(tell(mark(80)));
  t.notOk(store.notices.isNew(mark(80)));
  t.ok(tell(mark(100)), 'a higher one');
  t.notOk(tell(mark(80)), 'and then none below it');
  t.ok(tell(mark(80, 'tomorrow')), 'the next period');
  t.ok(tell(mark(80, 'today', { quota: 'tokens_per_day' })), 'another quota');
  t.ok(tell(mark(80, 'today', { scopeId: 'acct_2' })), 'another scope');
  t.ok(tell(mark(0, '5000', { quota: 'balance', endsMs: null })), 'a balance');
  t.notOk(tell(mark(0, '5000', { quota: 'balance', endsMs: null })));
  await store.close();
  const again = open(t, folder);
  t.notOk(again.notices.isNew(mark(80, 'tomorrow')), 'also after a restart');
});

void t.test('webhooks wait until they are removed, and the oldest give way', (t) => {
  const { notices } = open(t);
  const told = (n: number): WaitingWebhook => ({ id: `msg_${n}`, body: `{"n":${n}}`, reportedMs: 1_000 + n });
  const one = notices.tell([mark(80)], () => told(0));
  t.same(one, { told: [mark(80)], dropped: 0 });
  t.same(notices.tell([mark(80)], () => told(1)).told, [], 'no second webhook');
  t.same(notices.waiting(), [told(0)]);
  const marks = Array.from({ length: WEBHOOKS_WAITING_MAX + 1 }, (_, n) =>
    mark(80, 'today', { scopeId: `key_${n}` }),
  );
  let n = 0;
  t.equal(notices.tell(marks, () => told(++n)).dropped, 2);
  const waiting = notices.waiting();
  t.equal(waiting.length, WEBHOOKS_WAITING_MAX);
  t.same(waiting[0], told(2), 'the oldest went');
  notices.remove(waiting[0]!);
  t.same(notices.waiting()[0], told(3));
  notices.remove(waiting[0]!);
  t.equal(notices.waiting().length, WEBHOOKS_WAITING_MAX - 1);
  t.end();
});

void t.test('ended periods are swept a day later', (t) => {
  const { notices } = open(t);
  const balance = mark(0, '7', { quota: 'balance', endsMs: null });
  notices.tell([mark(80), balance], NONE);
  notices.sweep(2 * DAY_MS);
  t.notOk(notices.isNew(mark(80)), 'the calendar may be set back');
  notices.sweep(2 * DAY_MS + 1);
  t.ok(notices.isNew(mark(80)));
  t.notOk(notices.isNew(balance), 'a balance has no end');
  t.end();
});

void t.test('what another process tells while an ended period is swept stays told', (t) => {
  const tables = openTables(t.testdir());
  t.teardown(() => tables.environment.close());
  const others = new NoticeRows(tables);
  const environment = Object.create(tables.environment) as Environment;
  environment.write = (work) => {
    others.tell([mark(80, 'tomorrow', { endsMs: 9 * DAY_MS })], NONE);
    return tables.environment.write(work);
  };
  others.tell([mark(80)], NONE);
  new NoticeRows({ ...tables, environment }).sweep(3 * DAY_MS);
  t.notOk(others.isNew(mark(80, 'tomorrow')));
  t.end();
});

void t.test('a webhook whose row is damaged is not sent, and swept', async (t) => {
  const folder = t.testdir();
  const before = new Store(folder);
  let n = 0;
  const marks = ['acct_1', 'acct_2', 'acct_3'].map((scopeId) => mark(80, 'today', { scopeId }));
  before.notices.tell(marks, () => ({ id: `msg_${++n}`, body: '{}', reportedMs: n }));
  await before.close();
  const root = openFile(storePath(folder), { noSubdir: true, maxDbs: 32, overlappingSync: false });
  const rows = root.openDB<unknown, [string, number, string]>('notices', {});
  rows.putSync(['waits', 1, 'msg_1'], asBinary(Buffer.from([0xdd, 0xff, 0xff, 0xff, 0xff])));
  rows.putSync(['waits', 2, 'msg_2'], { no: 'text' });
  await root.close();
  const { notices } = open(t, folder);
  t.same(notices.waiting(), [{ id: 'msg_3', body: '{}', reportedMs: 3 }]);
  notices.sweep(0);
  t.notOk(notices.isNew(marks[0]!), 'what was told stays');
  const left = notices.tell([], () => undefined);
  t.equal(left.dropped, 0);
  t.same(notices.waiting().length, 1);
});
