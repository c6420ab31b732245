/** The supervisor over real processes that crash, refuse, stall and do not listen. */
import { EventEmitter, once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { ConfigError } from '#src/config/config-error.js';
import { loadSettings, type LoadedSettings } from '#src/config/load.js';
import type { Settings } from '#src/config/schema.js';
import type { GatewayReady } from '#src/gateway/messages.js';
import type { GroupEnd } from '#src/supervisor/group-member.js';
import { supervise, type SupervisorOptions, supervisorOptions } from '#src/supervisor/supervisor.js';
import type { LogFields } from '#src/telemetry/log.js';
import { eventually } from '../../support/gateway.js';

const FIXTURE = new URL('../../fixtures/supervisor-gateway.js', import.meta.url);
/** Longer than a process takes to start on a busy machine; what a test waits for comes earlier. */
const LONG_MS = 120_000;

interface Run {
  /** What a reload reads. */
  readonly file: { loaded: LoadedSettings };
  readonly signals: EventEmitter;
  /** How many lines say so by now. */
  readonly seenCount: (message: RegExp) => number;
  /** Resolves with the fields of the first line that says so, and that has such fields. */
  readonly logged: (message: RegExp, fits?: (fields: LogFields) => boolean) => Promise<LogFields>;
  readonly ready: Promise<GatewayReady>;
  readonly readyCount: () => number;
  readonly end: Promise<GroupEnd>;
}

function run(behaviour: string, changes: Partial<SupervisorOptions> = {}, drainTimeoutMs = LONG_MS): Run {
  const { settings } = loadSettings({}, { environment: {}, workingDirectory: tmpdir() });
  const lines = new EventEmitter();
  const seen: [string, LogFields][] = [];
  const write = (message: string, fields: LogFields = {}): void => {
    seen.push([message, fields]);
    lines.emit('line');
  };
  const file: { loaded: LoadedSettings } = {
    loaded: {
      demo: true,
      inForce: [],
      source: undefined,
      settings: {
        ...settings,
        data: behaviour,
        drain_timeout_ms: drainTimeoutMs,
        listen: { ...settings.listen, port: 0 },
        admin: { ...settings.admin, port: 0 },
      },
    },
  };
  const signals = new EventEmitter();
  const readies = new EventEmitter();
  let readyCount = 0;
  const ready = once(readies, 'ready').then(([message]) => message as GatewayReady);
  const end = supervise(
    {
      ...supervisorOptions(
        file.loaded,
        () => Promise.resolve(file.loaded),
        { error: write, warn: write, info: write, record: write },
        () => undefined,
      ),
      entry: FIXTURE,
      pauses: { firstMs: 1, longestMs: 4, healthyMs: LONG_MS },
      readyMsMax: LONG_MS,
      exitGraceMs: 0,
      ...changes,
    },
    signals,
    (message) => {
      readyCount++;
      readies.emit('ready', message);
    },
  );
  return {
    file,
    signals,
    logged: async (message, fits = () => true) => {
      for (;;) {
        const line = seen.find(([text, fields]) => message.test(text) && fits(fields));
        if (line !== undefined) return line[1];
        await once(lines, 'line');
      }
    },
    seenCount: (message: RegExp) => seen.filter(([text]) => message.test(text)).length,
    ready,
    readyCount: () => readyCount,
    end,
  };
}

/** Stands for a SIGSTOP of the supervisor: time passes, and nothing is read. */
const stopFor = (ms: number): void => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
};

for (const signal of ['SIGTERM', 'SIGINT']) {
  void t.test(`${signal} drains, and a gateway that ends well makes a 0`, async (t) => {
    const { signals, ready, end } = run('serve');
    t.match(await ready, { kind: 'ready', port: 4242, adminPort: 4243, demoAccountId: 'acct_1' });
    signals.emit(signal);
    signals.emit('SIGTERM');
    t.same(await end, { exitCode: 0, rejection: undefined });
    t.same(signals.eventNames(), [], 'the handlers are gone');
  });
}

void t.test('a gateway that fails while draining makes a 1', async (t) => {
  const { signals, ready, end } = run('drain-badly');
  await ready;
  signals.emit('SIGTERM');
  t.same(await end, { exitCode: 1, rejection: undefined });
});

void t.test('a gateway that ignores the drain is killed after its time', async (t) => {
  const { signals, ready, end, logged } = run('deaf', { exitGraceMs: 20 }, 30);
  await ready;
  signals.emit('SIGTERM');
  t.same(await end, { exitCode: 1, rejection: undefined });
  t.same(await logged(/did not end in time/), { waited_ms: 50 });
});

void t.test('a second SIGINT kills at once', async (t) => {
  const { signals, ready, end } = run('deaf');
  await ready;
  signals.emit('SIGINT');
  signals.emit('SIGINT');
  t.same(await end, { exitCode: 1, rejection: undefined });
});

/** Of the fixture: the id of the first plan tells it what to make of new settings. */
const withPlan = (loaded: LoadedSettings, id: string): LoadedSettings => ({
  ...loaded,
  settings: { ...loaded.settings, plans: [{ ...loaded.settings.plans[0]!, id }] },
});

void t.test('SIGHUP reloads', async (t) => {
  const { signals, ready, end, logged, file } = run('serve');
  await ready;
  file.loaded = withPlan(file.loaded, 'new');
  signals.emit('SIGHUP');
  t.same(await logged(/^settings reloaded/), {
    origin: 'SIGHUP',
    applied: 'plans.demo (removed), plans.new (added)',
    restartNeeded: '',
  });
  signals.emit('SIGTERM');
  t.equal((await end).exitCode, 0);
});

void t.test('a file that is gone at a reload: told, and its settings stay', async (t) => {
  const { signals, ready, end, logged, file } = run('serve');
  await ready;
  const builtIn = file.loaded;
  // The start was without a file: the first reload finds one, and from then on it is wanted.
  file.loaded = { ...withPlan(builtIn, 'first'), demo: false, source: '/etc/tollgate.yaml' };
  signals.emit('SIGHUP');
  await logged(/^settings reloaded/);
  const { loaded } = file;
  file.loaded = withPlan(builtIn, 'built-in');
  signals.emit('SIGHUP');
  t.same(await logged(/^settings not reloaded/), {
    origin: 'SIGHUP',
    problems: '/etc/tollgate.yaml is not there any more: put it back, and reload',
  });
  file.loaded = { ...loaded, settings: withPlan(builtIn, 'back').settings };
  signals.emit('SIGHUP');
  t.match(
    await logged(/^settings reloaded/, ({ applied }) => String(applied).includes('back')),
    { applied: 'plans.first (removed), plans.back (added)' },
    'the built-in settings were never in force',
  );
  signals.emit('SIGTERM');
  t.equal((await end).exitCode, 0);
});

for (const [plan, changes, problem] of [
  ['used', {}, /^a plan is in use$/],
  ['stall', { reloadMsMax: 50 }, /^the gateway did not answer within 50 ms$/],
  ['crash', {}, /^the gateway ended \(signal SIGKILL;.*\) before it had taken the settings/],
] as const) {
  void t.test(`settings that a gateway does not take (${plan}): told, and the old ones stay`, async (t) => {
    const { signals, ready, end, logged, file } = run('serve', changes);
    await ready;
    const before = file.loaded;
    file.loaded = withPlan(before, plan);
    signals.emit('SIGHUP');
    const { problems } = await logged(/^settings not reloaded/);
    t.match(problems, problem);
    file.loaded = withPlan(before, 'sound');
    signals.emit('SIGHUP');
    const { applied } = await logged(/^settings reloaded/);
    t.equal(applied, 'plans.demo (removed), plans.sound (added)', 'a gateway that died was started at once');
    signals.emit('SIGTERM');
    t.equal((await end).exitCode, 0);
  });
}

void t.test('settings that a gateway does not take because it hangs: no memory is blamed', async (t) => {
  const { signals, ready, end, logged, file } = run('hang-once', { silentMsMax: 1_200 });
  await ready;
  file.loaded = withPlan(file.loaded, 'stall');
  signals.emit('SIGHUP');
  const { problems } = await logged(/^settings not reloaded/);
  t.match(problems, /^the gateway ended \(no sign of life for 1200 ms, killed\) before it had taken/);
  await logged(/serves again/);
  signals.emit('SIGTERM');
  t.equal((await end).exitCode, 0);
});

void t.test('with watch, a file that a gateway did not take is tried again', async (t) => {
  const { signals, ready, end, logged, file } = run('serve', { watchPeriodMs: 5 });
  await ready;
  const sound = withPlan(file.loaded, 'sound');
  file.loaded = { ...sound, settings: { ...sound.settings, watch: true } };
  signals.emit('SIGHUP');
  await logged(/^settings reloaded/);
  const { loaded } = file;
  file.loaded = {
    ...withPlan(loaded, 'crash'),
    settings: { ...withPlan(loaded, 'crash').settings, watch: true },
  };
  signals.emit('SIGHUP');
  t.match(await logged(/^settings not reloaded/), { problems: /^the gateway ended/ });
  file.loaded = { ...loaded, settings: { ...withPlan(loaded, 'later').settings, watch: true } };
  const { origin } = await logged(/^settings reloaded/, ({ applied }) => String(applied).includes('later'));
  t.equal(origin, 'file');
  signals.emit('SIGTERM');
  t.equal((await end).exitCode, 0);
});

void t.test('with watch, settings that could not be read are tried again', async (t) => {
  let isAway = false;
  const { signals, ready, end, logged, file } = run('serve', {
    watchPeriodMs: 5,
    load: () =>
      isAway ? Promise.reject(new ConfigError(['a.pem is not there'])) : Promise.resolve(file.loaded),
  });
  await ready;
  file.loaded = { ...file.loaded, settings: { ...file.loaded.settings, watch: true } };
  signals.emit('SIGHUP');
  await logged(/^settings reloaded/);
  isAway = true;
  signals.emit('SIGHUP');
  t.match(await logged(/^settings not reloaded/), { problems: 'a.pem is not there' });
  isAway = false;
  const before = file.loaded;
  file.loaded = { ...before, settings: { ...withPlan(before, 'later').settings, watch: true } };
  const { origin } = await logged(/^settings reloaded/, ({ applied }) => String(applied).includes('later'));
  t.equal(origin, 'file');
  signals.emit('SIGTERM');
  t.equal((await end).exitCode, 0);
});

void t.test('settings whose reading hangs keep no later reload waiting, nor the end', async (t) => {
  let hangs = true;
  let endReading: (late: LoadedSettings) => void = () => undefined;
  const stops: AbortSignal[] = [];
  const { signals, ready, end, logged, file } = run('serve', {
    loadMsMax: 30,
    load: (stop) => {
      stops.push(stop);
      return hangs ? new Promise((resolve) => (endReading = resolve)) : Promise.resolve(file.loaded);
    },
  });
  await ready;
  signals.emit('SIGHUP');
  const refused = (problem: RegExp) =>
    logged(/^settings not reloaded/, ({ problems }) => problem.test(String(problems)));
  await refused(/^the settings were not read within 30 ms: /);
  t.equal(stops[0]!.aborted, true, 'whoever reads them is told to end');
  signals.emit('SIGHUP');
  await refused(/^an earlier reload still reads: /);
  t.equal(stops.length, 1, 'one that does not end is the only one');
  endReading({ ...withPlan(file.loaded, 'late'), inForce: [], source: '/late.yaml' });
  await sleep(0);
  hangs = false;
  file.loaded = withPlan(file.loaded, 'new');
  signals.emit('SIGHUP');
  const { applied } = await logged(/^settings reloaded/);
  t.equal(applied, 'plans.demo (removed), plans.new (added)', 'what came late is dropped');
  hangs = true;
  signals.emit('SIGHUP');
  await eventually('the last reading', () => (stops.length === 3 ? true : undefined));
  signals.emit('SIGTERM');
  t.equal((await end).exitCode, 0);
  t.equal(stops[2]!.aborted, true, 'the end of the supervisor does not wait for it');
});

void t.test('a reload before the first gateway serves is refused in words', async (t) => {
  const { signals, end, logged } = run('stall', { exitGraceMs: 20 }, 0);
  signals.emit('SIGHUP');
  t.match(await logged(/^settings not reloaded/), { problems: /still starting/ });
  signals.emit('SIGTERM');
  await end;
});

for (const [behaviour, how] of [
  // A process that the kernel kills for memory shows no other trace.
  ['crash-once', /^signal SIGKILL; perhaps the kernel killed it for memory: .*dmesg.*oom_kill/],
  ['end-once', /^exit code 0$/],
] as const) {
  void t.test(`${behaviour}: started again, on the ports it had`, async (t) => {
    const { signals, logged, readyCount, end } = run(behaviour);
    t.match(await logged(/is started again/), { how, pause_ms: 1 });
    t.same(await logged(/serves again/), { port: 4242 });
    t.equal(readyCount(), 1, 'ready is told once');
    signals.emit('SIGTERM');
    t.equal((await end).exitCode, 0, 'a crash that was recovered does not spoil the end');
  });
}

void t.test('a gateway that serves and then gives no sign of life is killed and started again', async (t) => {
  const { signals, logged, seenCount, end } = run('hang-once', { silentMsMax: 1_200 });
  t.match(await logged(/hangs and is killed/), { silent_ms: 1_200 });
  t.same(await logged(/is started again/), { how: 'no sign of life for 1200 ms, killed', pause_ms: 1 });
  await logged(/serves again/);
  // Several times as long as the first one lived: the second gives signs of life.
  await sleep(3_000);
  // As a sleep of the machine or a stop of the supervisor: the time passes, and no sign of life is read.
  stopFor(3_000);
  await sleep(500);
  signals.emit('SIGTERM');
  t.equal((await end).exitCode, 0, 'the second was not killed');
  t.equal(seenCount(/hangs and is killed/), 1);
});

void t.test('a gateway that keeps crashing is started after growing pauses', async (t) => {
  const pauses: unknown[] = [];
  const log = {
    error: () => undefined,
    info: () => undefined,
    record: () => undefined,
    warn: (_: string, fields: LogFields = {}) => {
      pauses.push(fields.pause_ms);
      if (pauses.length === 4) signals.emit('SIGTERM');
    },
  };
  const { signals, end } = run('crash-always', { log });
  t.same(await end, { exitCode: 0, rejection: undefined });
  t.same(pauses, [1, 2, 4, 4]);
});

void t.test('a drain during the pause ends without another start', async (t) => {
  const { signals, logged, end } = run('crash-once', {
    pauses: { firstMs: LONG_MS, longestMs: LONG_MS, healthyMs: LONG_MS },
  });
  await logged(/is started again/);
  signals.emit('SIGTERM');
  t.same(await end, { exitCode: 0, rejection: undefined });
});

for (const [behaviour, rejection] of [
  ['refuse', 'the books are damaged'],
  ['refuse-silently', 'the gateway refused to start'],
  ['crash-early', 'the gateway ended before it was ready (exit code 3)'],
  // As lmdb ends it, if the data directory is on a disk that maps no files.
  [
    'fault-early',
    'the gateway ended before it was ready (signal SIGSEGV; perhaps the disk of fault-early is full, or cannot map files to memory)',
  ],
] as const) {
  void t.test(`${behaviour}: not started again, and the reason is told`, async (t) => {
    const { end, readyCount } = run(behaviour);
    t.same(await end, { exitCode: 1, rejection });
    t.equal(readyCount(), 0);
  });
}

void t.test('a gateway that cannot be found', async (t) => {
  const { end } = run('serve', { entry: new URL('file:///nowhere/gateway.js') });
  t.same(await end, { exitCode: 1, rejection: 'the gateway ended before it was ready (exit code 1)' });
});

void t.test('a gateway that refuses after a restart ends everything', async (t) => {
  const { end, readyCount } = run('crash-then-refuse');
  t.same(await end, { exitCode: 1, rejection: 'the books are damaged' });
  t.equal(readyCount(), 1);
});

void t.test('a start that hangs is killed', async (t) => {
  const rejection = 'the gateway ended before it was ready (not ready after 50 ms, killed)';
  t.same(await run('stall', { readyMsMax: 50 }).end, { exitCode: 1, rejection });
  const staying = run('refuse-and-stay', { exitGraceMs: 20 });
  t.same(await staying.end, { exitCode: 1, rejection: 'I stay' });
});

void t.test('the supervisor was stopped for longer than a start may take: `ready` counts', async (t) => {
  const { signals, ready, readyCount, seenCount, end } = run('serve', { readyMsMax: 1_000 });
  stopFor(5_000);
  await ready;
  await sleep(500);
  signals.emit('SIGTERM');
  t.same(await end, { exitCode: 0, rejection: undefined });
  t.equal(seenCount(/is started again/), 0, 'it was not killed');
  t.equal(readyCount(), 1);
});

void t.test('the supervisor was stopped while its gateway ended: none is said to be killed', async (t) => {
  const { signals, ready, seenCount, end } = run('serve', { exitGraceMs: 500 }, 0);
  await ready;
  signals.emit('SIGTERM');
  stopFor(3_000);
  t.same(await end, { exitCode: 0, rejection: undefined });
  t.equal(seenCount(/did not end in time/), 0);
});

void t.test(
  'SIGTERM before the gateway serves: the files are not watched, even if it then serves',
  async (t) => {
    const source = `${t.testdir({ 'a.yaml': '' })}/a.yaml`;
    const { settings } = loadSettings({}, { environment: {}, workingDirectory: tmpdir() });
    const watched: Settings = {
      ...settings,
      watch: true,
      data: 'ready-at-drain',
      drain_timeout_ms: 0,
      listen: { ...settings.listen, port: 0 },
      admin: { ...settings.admin, port: 0 },
    };
    const { signals, ready, end, seenCount } = run('', {
      source,
      settings: watched,
      watchPeriodMs: 5,
      exitGraceMs: LONG_MS,
    });
    signals.emit('SIGTERM');
    await ready;
    writeFileSync(source, 'watch: true');
    await end;
    t.equal(seenCount(/^settings/), 0, 'no reload');
  },
);

void t.test('SIGTERM before the gateway serves', async (t) => {
  const { signals, end } = run('stall', { exitGraceMs: 10 }, 10);
  signals.emit('SIGTERM');
  t.same(await end, { exitCode: 1, rejection: undefined });
});
