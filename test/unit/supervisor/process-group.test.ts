/** A group of real processes: places, who leads, restarts, replacement one by one. */
import { EventEmitter, once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { loadSettings } from '#src/config/load.js';
import type { Settings } from '#src/config/schema.js';
import { ProcessGroup } from '#src/supervisor/process-group.js';
import { supervisorOptions } from '#src/supervisor/supervisor.js';
import { BEHAVIOURS, type GroupEvent } from '../../fixtures/group-gateway.js';
import { eventually } from '../../support/gateway.js';

const FIXTURE = new URL('../../fixtures/group-gateway.js', import.meta.url);
/** Stands in for a machine without memory: `fork` throws, as for ENOMEM. */
const UNFORKABLE = new URL('file:///gateway%00.js');
/** Longer than a process takes to start on a busy machine. */
const LONG_MS = 120_000;

async function groupOf(
  t: Test,
  processes: number,
  changes: Partial<Settings> = {},
  /** Called when the first gateway serves, before the others are started. */
  onReady: (machine: { isFull: boolean }) => void = () => undefined,
  readyMsMax = LONG_MS,
) {
  const folder = t.testdir();
  const file = join(folder, 'events');
  writeFileSync(file, '');
  const loaded = loadSettings({}, { environment: {}, workingDirectory: folder });
  const settings: Settings = {
    ...loaded.settings,
    processes,
    workers: BEHAVIOURS.serve,
    data: file,
    drain_timeout_ms: LONG_MS,
    ...changes,
  };
  const infos: string[] = [];
  const errors: object[] = [];
  const quiet = {
    error: (message: string, fields?: object) => void errors.push({ message, ...fields }),
    warn: () => undefined,
    info: (message: string) => void infos.push(message),
    record: () => undefined,
  };
  const ready = new EventEmitter();
  /** Whether the machine gives no more processes. */
  const machine = { isFull: false };
  const group = new ProcessGroup(
    {
      ...supervisorOptions(
        { ...loaded, settings },
        () => Promise.resolve(loaded),
        quiet,
        () => undefined,
      ),
      get entry() {
        return machine.isFull ? UNFORKABLE : FIXTURE;
      },
      pauses: { firstMs: 1, longestMs: 4, healthyMs: LONG_MS },
      readyMsMax,
      exitGraceMs: 0,
    },
    {
      onReady: () => {
        onReady(machine);
        ready.emit('ready');
      },
      onReloadRequested: () => Promise.reject(new Error('nobody asks')),
    },
  );
  t.teardown(async () => {
    group.kill();
    await group.ended;
  });
  await once(ready, 'ready');
  const events = (): GroupEvent[] =>
    readFileSync(file, 'utf8')
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as GroupEvent);
  const seen = (event: string, count: number): Promise<GroupEvent[]> =>
    eventually(`${count} times ${event}`, () => {
      const found = events().filter((one) => one.event === event);
      return found.length >= count ? found : undefined;
    });
  return { group, settings, events, seen, machine, infos, errors };
}

void t.test('each has a place of its own; the first leads, the others join its ports', async (t) => {
  const { group, seen } = await groupOf(t, 3);
  const starts = await seen('start', 3);
  t.same(starts.map(({ slot }) => slot).sort(), [0, 1, 2]);
  t.same(
    starts.map(({ slot, leads, joins, isRestart }) => [slot === 0, leads, joins, isRestart]),
    [
      [true, true, false, false],
      [false, false, true, true],
      [false, false, true, true],
    ],
  );
  group.drain();
  t.same(await group.ended, { exitCode: 0, rejection: undefined });
});

void t.test('only one that has served before serves again', async (t) => {
  const { group, settings, seen, infos } = await groupOf(t, 2);
  const [, second] = await seen('start', 2);
  // Each answers after it has said that it serves, on the same channel.
  t.same(await group.reload(settings, { dryRun: true }), []);
  t.same(infos, [], 'at the first start of both');
  process.kill(second!.pid, 'SIGKILL');
  await eventually('it serves again', () => infos.includes('gateway serves again') || undefined);
});

void t.test('one that dies comes back in its place; another leads meanwhile, and goes on to', async (t) => {
  const { seen } = await groupOf(t, 2);
  const [first] = await seen('start', 2);
  // The second must serve before it can lead; it is asked when it does, or when the first is gone.
  process.kill(first!.pid, 'SIGKILL');
  const [lead] = await seen('lead', 1);
  const starts = await seen('start', 3);
  const again = starts.at(-1)!;
  t.equal(again.slot, 0, 'its place');
  t.not(again.pid, first!.pid);
  t.match([lead!.slot, again.leads], lead!.slot === 1 ? [1, false] : [0, false]);
});

void t.test('a lone one that dies is told that it is started again', async (t) => {
  const { seen } = await groupOf(t, 1);
  process.kill((await seen('start', 1))[0]!.pid, 'SIGKILL');
  t.match((await seen('start', 2))[1], { joins: false, isRestart: true });
});

void t.test('both die, and one is refused: the other is tried all the same', async (t) => {
  const { seen, events } = await groupOf(t, 2, { workers: BEHAVIOURS.refuseAgain });
  for (const { pid } of await seen('start', 2)) process.kill(pid, 'SIGKILL');
  // It is told so if it starts beside the other one, and starts so if that was refused before.
  const leads = await eventually('the other one to lead', () =>
    events().find(({ event, slot, leads }) => slot === 1 && (event === 'lead' || leads === true)),
  );
  t.equal(leads.slot, 1, 'it serves in the end');
});

void t.test('what an operator logs at one is logged at all, also if it comes during a reload', async (t) => {
  const { group, settings, seen, events } = await groupOf(t, 3);
  await seen('start', 3);
  t.same(await group.reload({ ...settings, log: { level: 'error' } }, { dryRun: false }), []);
  const told = await seen('log', 6);
  t.same(told.map(({ slot }) => slot).sort(), [0, 0, 1, 1, 2, 2], 'at once, and after the settings');
  t.same(new Set(told.map(({ level }) => level)), new Set(['warn']));
  const atFirst = events().filter(({ event, slot }) => slot === 0 && /^(?:log|reload)$/.test(event));
  t.same(
    atFirst.map(({ event }) => event),
    ['log', 'reload', 'log'],
  );
});

void t.test('what an operator logs is logged by those that are started later', async (t) => {
  const { group, settings, seen } = await groupOf(t, 2);
  await seen('start', 2);
  t.same(await group.reload({ ...settings, log: { level: 'error' } }, { dryRun: false }), []);
  await seen('log', 4);
  process.kill((await seen('start', 2)).find(({ slot }) => slot === 1)!.pid, 'SIGKILL');
  const again = (await seen('start', 3))[2]!;
  t.match((await seen('log', 5))[4], { pid: again.pid, level: 'warn' }, 'one that is started again');
  t.equal(await group.replace(settings).done, undefined);
  const started = (await seen('start', 5)).slice(3);
  t.match(
    (await seen('log', 7)).slice(5),
    started.map(({ pid }) => ({ pid, level: 'warn' })),
    'those that replace the others',
  );
});

void t.test('a reload that one gateway fails keeps what an operator logs', async (t) => {
  const { group, settings, seen, events } = await groupOf(t, 3);
  await seen('start', 3);
  t.same(await group.reload({ ...settings, log: { level: 'error' } }, { dryRun: false }), []);
  await seen('log', 6);
  t.same(await group.reload({ ...settings, log: { level: 'warn' } }, { dryRun: false }), [
    'a worker is stuck',
  ]);
  await seen('log', 9);
  const last = new Map(
    events()
      .filter(({ event }) => event === 'reload' || event === 'log')
      .map(({ slot, event, level }) => [slot, [event, level]]),
  );
  t.same([...last.values()], Array(3).fill(['log', 'warn']), 'after the settings that were in force');
  t.same(await group.reload({ ...settings, low_balance: 'clamp' }, { dryRun: false }), []);
  t.same(await group.reload({ ...settings, log: { level: 'warn' } }, { dryRun: false }), [
    'a worker is stuck',
  ]);
  t.equal((await seen('log', 9)).length, 9, 'the reload between was accepted');
});

void t.test('a reload reaches all, and one that is started after it', async (t) => {
  const { group, settings, seen, events } = await groupOf(t, 2);
  await seen('start', 2);
  t.same(await group.reload({ ...settings, low_balance: 'clamp' }, { dryRun: false }), []);
  t.same(
    events()
      .filter(({ event }) => event === 'reload')
      .map(({ lowBalance }) => lowBalance),
    ['clamp', 'clamp'],
  );
  process.kill((await seen('start', 2))[1]!.pid, 'SIGKILL');
  t.equal((await seen('start', 3))[2]!.lowBalance, 'clamp');
});

void t.test('a reload that one gateway fails leaves none with the new settings', async (t) => {
  const { group, settings, seen, events } = await groupOf(t, 3);
  await seen('start', 3);
  const next: Settings = { ...settings, low_balance: 'clamp', log: { level: 'warn' } };
  t.same(await group.reload(next, { dryRun: false }), ['a worker is stuck']);
  const last = new Map(
    events()
      .filter(({ event }) => event === 'reload')
      .map(({ slot, lowBalance }) => [slot, lowBalance]),
  );
  t.same([...last].sort(), [
    [0, 'refuse'],
    [1, 'refuse'],
    [2, 'refuse'],
  ]);
  process.kill((await seen('start', 3))[2]!.pid, 'SIGKILL');
  t.equal((await seen('start', 4))[3]!.lowBalance, 'refuse');
});

void t.test(
  'replaced one by one: the next serves before the former drains, and the lead is passed on',
  async (t) => {
    const { group, settings, seen, events } = await groupOf(t, 2);
    await seen('start', 2);
    const { count, done } = group.replace({
      ...settings,
      low_balance: 'clamp',
      data: '/elsewhere',
      listen: { ...settings.listen, port: 4444 },
    });
    t.equal(count, 2);
    t.match(group.replaceProblem, /already/);
    t.throws(() => group.replace(settings), /gateways are replaced only if they can be/);
    t.equal(await done, undefined);
    const story = events()
      .slice(2)
      .map(({ event, slot }) => `${event} ${slot}`);
    t.same(story, ['start 2', 'lead 2', 'follow 0', 'drain 0', 'start 0', 'drain 1']);
    t.ok(events().every(({ event, replaced }) => event !== 'drain' || replaced === true));
    t.same(
      events()
        .filter(({ event }) => event === 'start')
        .map(({ lowBalance }) => lowBalance),
      ['refuse', 'refuse', 'clamp', 'clamp'],
      'with the new settings, and the data where it was',
    );
    t.same(
      events()
        .filter(({ event }) => event === 'start')
        .slice(1)
        .map(({ port }) => port),
      [4242, 4242, 4242],
      'all on the port that the first one got',
    );
    t.equal(group.replaceProblem, undefined, 'it can be done again');
  },
);

for (const [behaviour, how] of [
  ['refuse', 'not with these'],
  ['crash', 'exit code 3'],
] as const) {
  void t.test(`a replacement that does not serve (${behaviour}): those that do go on`, async (t) => {
    const { group, settings, seen, events } = await groupOf(t, 2);
    await seen('start', 2);
    const { done } = group.replace({ ...settings, workers: BEHAVIOURS[behaviour] });
    t.equal(await done, `the new gateway did not serve: ${how}`);
    t.notOk(events().some(({ event }) => event === 'drain' || event === 'lead'));
    process.kill((await seen('start', 3))[0]!.pid, 'SIGKILL');
    const [, , , again] = await seen('start', 4);
    t.equal(again!.slot, 0, 'started again with what it had');
    group.drain();
    t.same(await group.ended, { exitCode: 0, rejection: undefined });
  });
}

void t.test('a reload reaches one that is being replaced too, which keeps nobody back', async (t) => {
  const { group, settings, seen, events } = await groupOf(t, 2, { workers: BEHAVIOURS.deaf });
  await seen('start', 2);
  const { done } = group.replace({ ...settings, workers: BEHAVIOURS.serve });
  const [drained] = await seen('drain', 1);
  t.same(await group.reload({ ...settings, low_balance: 'clamp' }, { dryRun: false }), []);
  const slotsOf = (event: string): number[] =>
    events()
      .filter((one) => one.event === event)
      .map(({ slot }) => slot)
      .sort();
  t.same(
    [slotsOf('check'), slotsOf('reload')],
    [
      [1, 2],
      [0, 1, 2],
    ],
  );
  process.kill(drained!.pid, 'SIGKILL');
  t.same(
    await group.reload({ ...settings, low_balance: 'refuse' }, { dryRun: false }),
    [],
    'its end is no problem',
  );
  group.kill();
  await done;
});

void t.test('one that does not end is killed after its time, and the next is replaced', async (t) => {
  const { group, settings, errors } = await groupOf(t, 2, { workers: BEHAVIOURS.deaf, drain_timeout_ms: 20 });
  const { done } = group.replace({ ...settings, workers: BEHAVIOURS.serve });
  t.equal(await done, undefined);
  const error = {
    message: 'a gateway that was replaced did not end well',
    how: 'not ended after 40 ms, killed',
  };
  t.same(errors, [error, error], 'no memory is blamed');
});

void t.test('a drain in the middle ends all of them', async (t) => {
  const { group, settings, seen } = await groupOf(t, 3);
  await seen('start', 3);
  const { done } = group.replace(settings);
  await seen('start', 4);
  group.drain();
  t.match(await done, /stopping|did not serve/);
  await group.ended;
});

void t.test('a drain while the admin interface is passed on: nothing counts as replaced', async (t) => {
  const { group, settings, seen } = await groupOf(t, 1, { sharing: {} as NonNullable<Settings['sharing']> });
  const { done } = group.replace({ ...settings, workers: BEHAVIOURS.portless });
  await seen('lead', 1);
  group.drain();
  t.equal(await done, 'the gateways are stopping');
  t.same(await group.ended, { exitCode: 0, rejection: undefined });
});

void t.test('a single one is not replaced', async (t) => {
  const { group } = await groupOf(t, 1);
  t.match(group.replaceProblem, /set processes to 2 or more/);
});

void t.test('no process can be forked: a replacement fails, and those that serve go on', async (t) => {
  const { group, settings, seen, events, machine } = await groupOf(t, 2);
  await seen('start', 2);
  machine.isFull = true;
  t.match(await group.replace(settings).done, /did not serve: no process/);
  t.equal(group.replaceProblem, undefined, 'it can be asked for again');
  t.notOk(events().some(({ event }) => event === 'drain' || event === 'lead'));
});

void t.test(
  'no process can be forked for a while: it is tried again, with all that the lost one had',
  async (t) => {
    const { group, settings, seen, machine } = await groupOf(t, 1);
    const [first] = await seen('start', 1);
    machine.isFull = true;
    process.kill(first!.pid, 'SIGKILL');
    const problems = await eventually('a reload while none can be forked', async () => {
      const found = await group.reload({ ...settings, low_balance: 'clamp' }, { dryRun: false });
      return found.some((problem) => problem.includes('no process')) ? found : undefined;
    });
    t.equal(problems.length, 1);
    machine.isFull = false;
    const [, again] = await seen('start', 2);
    t.match(again, { leads: true });
  },
);

void t.test('a reload that no gateway can record is recorded by the next that serves, once', async (t) => {
  const { group, settings, seen, machine } = await groupOf(t, 1);
  const [first] = await seen('start', 1);
  machine.isFull = true;
  process.kill(first!.pid, 'SIGKILL');
  await eventually('no gateway to record it', async () =>
    (await group.reload(settings, { dryRun: true })).some((problem) => problem.includes('no process')),
  );
  group.recordReload({ by: 'signal', changes: [], replacing: 0 });
  machine.isFull = false;
  const [, again] = await seen('start', 2);
  t.match(await seen('record', 1), [{ pid: again!.pid }]);
  group.recordReload({ by: 'watch', changes: [], replacing: 0 });
  t.equal((await seen('record', 2)).length, 2, 'the first is not sent again');
});

void t.test(
  'a reload that a gateway was asked to record, and has not, is recorded by the next',
  async (t) => {
    for (const processes of [1, 2]) {
      const { group, seen } = await groupOf(t, processes, { workers: BEHAVIOURS.forgetful });
      const [first] = await seen('start', processes);
      group.recordReload({ by: 'signal', changes: [], replacing: 0 });
      const [asked, other] = await seen('record', 2);
      t.equal(asked!.pid, first!.pid);
      t.not(other!.pid, first!.pid);
      const starts = await seen('start', processes + 1);
      process.kill(other!.pid, 'SIGKILL');
      await seen('start', starts.length + 1);
      group.recordReload({ by: 'watch', changes: [], replacing: 0 });
      t.equal((await seen('record', 3)).length, 3, 'what was recorded is not asked for again');
    }
  },
);

void t.test('no process can be forked for the others at first: they come later', async (t) => {
  const { seen, machine } = await groupOf(t, 3, {}, (full) => (full.isFull = true));
  await seen('start', 1);
  machine.isFull = false;
  t.same((await seen('start', 3)).map(({ slot }) => slot).sort(), [0, 1, 2]);
});

void t.test('the new one ends while it takes the lead: the former goes on, with it', async (t) => {
  const { group, settings, seen, events } = await groupOf(t, 2);
  await seen('start', 2);
  const { done } = group.replace({ ...settings, workers: BEHAVIOURS.leadless });
  t.match(await done, /ended before it had taken over/);
  t.notOk(events().some(({ event }) => event === 'drain' || event === 'follow'));
  const [first] = await seen('start', 3);
  process.kill(first!.pid, 'SIGKILL');
  t.equal((await seen('lead', 2))[1]!.slot, 1, 'the other one leads then');
  t.equal((await seen('start', 4))[3]!.slot, 0, 'and no more are started than there were');
  group.drain();
  t.same(await group.ended, { exitCode: 0, rejection: undefined });
});

void t.test(
  'the new one cannot open the admin interface: it goes, and the next replacement is made',
  async (t) => {
    const { group, settings, seen, events } = await groupOf(t, 2, {}, undefined, 15_000);
    await seen('start', 2);
    t.match(
      await group.replace({ ...settings, workers: BEHAVIOURS.portless }).done,
      /before it had taken over/,
    );
    const [follows] = await seen('follow', 1);
    t.equal(follows!.slot, 2, 'it stops trying');
    t.same(
      events()
        .filter(({ event }) => event === 'drain')
        .map(({ slot }) => slot),
      [2],
      'it ends, and no other',
    );
    t.equal(group.replaceProblem, undefined);
    t.equal(await group.replace({ ...settings, workers: BEHAVIOURS.serve }).done, undefined);
    t.equal((await seen('drain', 3)).length, 3);
  },
);

void t.test('a reload that fails while all of them stop is not taken back', async (t) => {
  const { group, settings, seen, events } = await groupOf(t, 2, { workers: BEHAVIOURS.tardy });
  await seen('start', 2);
  const done = group.reload({ ...settings, low_balance: 'clamp' }, { dryRun: false });
  await seen('reload', 2);
  group.drain();
  t.match(await done, [/too late|ended/]);
  await group.ended;
  const count = (event: string) => events().filter((one) => one.event === event).length;
  t.equal(count('reload'), 2, 'nobody is asked again');
  t.equal(count('start'), 2, 'nor started again');
});
