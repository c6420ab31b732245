/** Figures of a group while its processes answer, do not answer, and end. */
import t from 'tap';
import type { Snapshot, SnapshotKind } from '#src/gateway/messages.js';
import { GroupSnapshots, type ReadableProcess } from '#src/supervisor/group-snapshots.js';
import type { MetricsSnapshot } from '#src/telemetry/metrics-snapshot.js';

const NO_USE = { slot: 0, minute: { unused: 0, heardNumber: 0 }, stocks: {} };

class FakeProcess implements ReadableProcess {
  calls = 0;
  answers = true;
  asked = 0;

  read(_what: SnapshotKind): Promise<Snapshot> {
    this.asked += 1;
    return Promise.resolve(this.answers ? { metrics: this.families } : {});
  }

  get families(): MetricsSnapshot {
    return [
      { name: 'calls_total', type: 'counter', samples: [{ value: this.calls, labels: {} }] },
      { name: 'in_flight', type: 'gauge', samples: [{ value: 1, labels: {} }] },
    ];
  }
}

/** The sum that an operator is shown. */
async function shown(readings: GroupSnapshots): Promise<number> {
  const { members, ended } = await readings.collect('metrics');
  return [...members.map(({ reading }) => reading), ended]
    .flatMap(({ metrics = [] }) => metrics)
    .filter(({ type }) => type === 'counter')
    .flatMap(({ samples }) => samples)
    .reduce((sum, { value }) => sum + value, 0);
}

void t.test('a sum never falls: killed, silent, ended with its last figures', async (t) => {
  const readings = new GroupSnapshots();
  const [first, second, third] = [new FakeProcess(), new FakeProcess(), new FakeProcess()];
  [first, second, third].forEach((process, slot) => readings.add(process, slot));
  [first.calls, second.calls, third.calls] = [10, 20, 30];
  t.equal(await shown(readings), 60);
  first.calls = 11;
  readings.remove(first);
  t.equal(await shown(readings), 60, 'killed: what was last seen of it');
  second.calls = 25;
  second.answers = false;
  t.equal(await shown(readings), 60, 'silent: the same');
  second.answers = true;
  t.equal(await shown(readings), 65);
  third.calls = 33;
  readings.recordLast(third, { metrics: third.families });
  readings.remove(third);
  t.equal(await shown(readings), 68, 'ended: all of it');
  const { members, ended } = await readings.collect('metrics');
  t.same(
    members.map(({ slot }) => slot),
    [1],
  );
  t.same(
    ended.metrics?.map(({ name }) => name),
    ['calls_total'],
    'gauges are of those that run',
  );
});

void t.test('who ends while it is asked is counted once', async (t) => {
  const readings = new GroupSnapshots();
  const process = new FakeProcess();
  process.calls = 5;
  readings.add(process, 0);
  await shown(readings);
  const sum = shown(readings);
  readings.remove(process);
  t.equal(await sum, 5);
});

void t.test('operators who ask at the same time cost one question', async (t) => {
  const readings = new GroupSnapshots();
  const process = new FakeProcess();
  readings.add(process, 0);
  await Promise.all([shown(readings), shown(readings), shown(readings)]);
  t.equal(process.asked, 1);
  await shown(readings);
  t.equal(process.asked, 2);
});

void t.test(
  'what a process tells of its accounts before its end is handed on, and not for ever',
  async (t) => {
    const readings = new GroupSnapshots();
    for (let slot = 0; slot < 6; slot++) {
      const process = new FakeProcess();
      readings.add(process, slot);
      readings.recordLast(process, { accounts: [{ source: `process-${slot}`, spans: [] }] });
      readings.remove(process);
    }
    const { ended } = await readings.collect('accounts');
    t.same(
      ended.accounts?.map(({ source }) => source),
      ['process-2', 'process-3', 'process-4', 'process-5'],
    );
  },
);

void t.test('an errand is never answered by what was under way before it was asked for', async (t) => {
  const readings = new GroupSnapshots();
  let begun = 0;
  const ends: ((reading: Snapshot) => void)[] = [];
  readings.add(
    {
      read: () => {
        begun += 1;
        return new Promise((resolve) => ends.push(resolve));
      },
    },
    0,
  );
  const first = readings.collect('changes');
  const later = [readings.collect('changes'), readings.collect('changes')];
  t.equal(begun, 1, 'those that come later wait');
  ends[0]!({ changes: 1 });
  t.match(await first, { members: [{ reading: { changes: 1 } }] });
  t.equal(begun, 2, 'one collection for all of them');
  ends[1]!({ changes: 2 });
  for (const answer of await Promise.all(later)) t.match(answer, { members: [{ reading: { changes: 2 } }] });
});

void t.test('a process that went silent has not flushed because it once had', async (t) => {
  const readings = new GroupSnapshots();
  const replies: Snapshot[] = [{ books: true }, {}, { books: true }];
  const silent: ReadableProcess = { read: () => Promise.resolve(replies.shift() ?? {}) };
  readings.add({ read: () => Promise.resolve({ books: true }) }, 0);
  readings.add(silent, 1);
  const flushed = async (): Promise<unknown[]> =>
    (await readings.collect('books')).members.map(({ reading: { books } }) => books);
  t.same(await flushed(), [true, true]);
  t.same(await flushed(), [true, undefined], 'nothing is known of it');
  t.same(await flushed(), [true, true]);
  const last = flushed();
  readings.remove(silent);
  t.same(await last, [true], 'one that ends meanwhile is not asked about any more');
});

void t.test('what is about accounts is for who asks alone, and nothing of it is kept', async (t) => {
  const readings = new GroupSnapshots();
  const asked: (readonly string[])[] = [];
  const answers: (() => void)[] = [];
  const processOf = (): ReadableProcess => ({
    read: (_what, accounts = []) => {
      asked.push(accounts);
      const calls = accounts.map((scope) => ({ ...NO_USE, scope }));
      return new Promise((resolve) => answers.push(() => resolve({ calls })));
    },
  });
  readings.add(processOf(), 0);
  readings.add(processOf(), 1);
  const both = [readings.collect('calls', ['acct_a']), readings.collect('calls', ['acct_b'])];
  t.same(asked, [['acct_a'], ['acct_a'], ['acct_b'], ['acct_b']]);
  // The second question is answered in between.
  for (const at of [0, 2, 3, 1]) {
    answers[at]!();
    await new Promise(setImmediate);
  }
  for (const [at, group] of (await Promise.all(both)).entries()) {
    const account = ['acct_a', 'acct_b'][at]!;
    t.match(group, {
      members: [0, 1].map((slot) => ({ slot, reading: { calls: [{ scope: account }] } })),
      ended: {},
    });
  }
});

void t.test('the last report of a process counts, whatever it replies until it has ended', async (t) => {
  const readings = new GroupSnapshots();
  const ofSource = (source: string): Snapshot => ({ accounts: [{ source, spans: [] }] });
  const replies: (() => void)[] = [];
  const process: ReadableProcess = {
    read: () => new Promise((resolve) => replies.push(() => resolve(ofSource('later')))),
  };
  readings.add(process, 0);
  const asked = readings.collect('accounts');
  readings.recordLast(process, ofSource('last'));
  replies[0]!();
  t.match(await asked, { members: [{ reading: ofSource('last') }] }, 'asked before, replied after');
  t.match(await readings.collect('accounts'), { members: [{ reading: ofSource('last') }] });
  t.equal(replies.length, 1, 'not asked again');
  readings.remove(process);
  t.match(await readings.collect('accounts'), { members: [], ended: ofSource('last') });
});
