/** The log: what a line holds, which are written, and that a reader who stops or goes holds nobody up. */
import { execFileSync, spawn, type ChildProcess, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs, { closeSync, constants, openSync, readFileSync, readSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { StandardError, WHOLE_BYTES_MAX } from '#src/telemetry/standard-error.js';

const WRITER = fileURLToPath(new URL('../../fixtures/log-writer.js', import.meta.url));
/** What 5,000 lines take without a wait is well below a second; a blocked write never ends. */
const LINES = 5_000;

function start(t: Test, lines: number, stderr: 'pipe' | number): ChildProcess {
  const child = spawn(process.execPath, [WRITER, String(lines)], { stdio: ['pipe', 'pipe', stderr] });
  t.teardown(() => child.kill('SIGKILL'));
  return child;
}

/** All that is written to a stream until it ends. */
async function textOf(stream: NodeJS.ReadableStream): Promise<string> {
  let text = '';
  for await (const piece of stream) text += String(piece);
  return text;
}

const parse = (text: string): Record<string, unknown>[] =>
  text
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Record<string, unknown>);

void t.test('a line is JSON with level, time, thread and process', async (t) => {
  const child = start(t, 1, 'pipe');
  child.stdin!.end();
  const [line, ...more] = parse(await textOf(child.stderr!));
  t.match(line, { level: 'warn', thread: 'fixture', pid: child.pid, at: 0, message: 'a line' });
  t.match(line!.time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  t.same(more, []);
});

void t.test('fields of any kind and names are told, each line is one line and JSON', async (t) => {
  const fields = {
    text: 'a"\n\u0000 é \ud800 😀',
    on: true,
    rate: 0.5,
    NaN: NaN,
    left: undefined,
    'a "name"': 1,
  };
  const script = `import { createLog } from '#src/telemetry/log.js';
    const log = createLog('a "thread"');
    log.info('no fields');
    log.error('a "message"\\n', { ...${JSON.stringify(fields)}, NaN: NaN, left: undefined });
    log.warn('long', { text: 'x'.repeat(10_000) });`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const lines = parse(await textOf(child.stderr));
  const origin = { thread: 'a "thread"', pid: child.pid };
  t.match(lines[0], { level: 'info', ...origin, message: 'no fields' });
  const { time, ...told } = lines[1]!;
  t.type(time, 'string');
  const own = { text: 'a"\n\u0000 é \ud800 😀', on: true, rate: 0.5, NaN: null, 'a "name"': 1 };
  t.same(told, { level: 'error', ...origin, ...own, message: 'a "message"\n' });
  t.equal(lines[2]!.text, `${'x'.repeat(2_500)}…`);
  t.equal(lines.length, 3);
});

void t.test(
  'a reader that stops, on a socket: nobody waits, lines are dropped, and that is told',
  async (t) => {
    const child = start(t, LINES, 'pipe');
    // Nothing is read before the writer is through.
    const [first] = (await once(child.stdout!, 'data')) as [Buffer];
    t.ok(Number(String(first)) < 5_000, `the longest line took ${String(first).trim()} ms`);
    const reading = textOf(child.stderr!);
    const told = new Promise<void>((resolve) =>
      child.stderr!.on('data', (piece: Buffer) => {
        if (String(piece).includes('lines were dropped')) resolve();
      }),
    );
    await told;
    child.stdin!.end();
    const lines = parse(await reading);
    const last = lines.pop()!;
    t.match(last, { level: 'warn', message: /^lines were dropped/ });
    t.equal(lines.length + Number(last.dropped), LINES);
    t.ok(lines.length > 500, `${lines.length} waited`);
  },
);

void t.test('the same on a pipe', async (t) => {
  const path = join(t.testdir(), 'fifo');
  execFileSync('mkfifo', [path]);
  const end = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
  t.teardown(() => closeSync(end));
  const blocking = openSync(path, constants.O_WRONLY);
  const child = start(t, LINES, blocking);
  closeSync(blocking);
  await once(child.stdout!, 'data');
  const buffer = Buffer.alloc(4 * 1024 * 1024);
  const bytes = readSync(end, buffer);
  const text = buffer.toString('utf8', 0, bytes);
  parse(text.slice(0, text.lastIndexOf('\n')));
  child.stdin!.end();
  t.same(await once(child, 'exit'), [0, null]);
});

void t.test('a reader that has gone', async (t) => {
  const child = start(t, LINES, 'pipe');
  child.stderr!.destroy();
  await once(child.stdout!, 'data');
  child.stdin!.end();
  t.same(await once(child, 'exit'), [0, null]);
});

void t.test('what waits keeps its order and its bound', (t) => {
  const path = join(t.testdir(), 'fifo');
  execFileSync('mkfifo', [path]);
  const reader = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
  const writer = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
  t.teardown(() => [reader, writer].forEach((each) => closeSync(each)));
  const output = new StandardError(writer);
  const dropped: number[] = [];
  output.onResumed = (lines) => void dropped.push(lines);
  const line = (at: number): Buffer => Buffer.from(`${String(at).padStart(WHOLE_BYTES_MAX - 1, '0')}\n`);
  const buffer = Buffer.alloc(1024 * 1024);
  const read = (): string => buffer.toString('utf8', 0, readSync(reader, buffer));
  for (let at = 0; at < 100; at++) output.write(line(at));
  let text = '';
  while (dropped.length === 0) {
    text += read();
    output.flush();
  }
  text += read();
  const numbers = text.split('\n').slice(0, -1).map(Number);
  t.same(
    numbers,
    numbers.map((_, at) => at),
    'whole and in order',
  );
  t.equal(numbers.length + dropped[0]!, 100);
  t.equal(numbers.length, 16 + 64, 'a pipe of 64 KiB and 256 KiB that wait');
  t.end();
});

void t.test('a full disk costs lines beyond the bound, counted, and none is cut', (t) => {
  const path = join(t.testdir(), 'log');
  const file = openSync(path, 'a');
  t.teardown(() => closeSync(file));
  const output = new StandardError(file);
  const dropped: number[] = [];
  output.onResumed = (lines) => void dropped.push(lines);
  const { writeSync } = fs;
  const setWrite = (write: typeof writeSync): void => {
    fs.writeSync = write;
    syncBuiltinESMExports();
  };
  t.teardown(() => setWrite(writeSync));
  let leftBytes = 0;
  const fill = (code: string): void =>
    setWrite(((_: number, bytes: Buffer) => {
      if (leftBytes === 0) throw Object.assign(new Error(code), { code });
      const count = Math.min(leftBytes, bytes.length);
      leftBytes -= count;
      return writeSync(file, bytes, 0, count);
    }) as typeof writeSync);
  const line = (at: number): Buffer => Buffer.from(`${String(at).padStart(1_023, '0')}\n`);
  let next = 0;
  for (const [code, bytes] of [
    ['ENOSPC', 10],
    ['EDQUOT', 0],
  ] as const) {
    // The disk may take a part of a line yet.
    leftBytes = bytes;
    fill(code);
    for (let count = 0; count < 300; count++) {
      output.write(line(next++));
      // As the timer does.
      output.flush();
    }
    setWrite(writeSync);
    output.flush();
  }
  const numbers = readFileSync(path, 'utf8').split('\n').slice(0, -1).map(Number);
  t.equal(numbers.length, 2 * 256, 'those that fit the bound');
  t.same(
    numbers,
    [...Array(600).keys()].filter((at) => at % 300 < 256),
  );
  t.same(dropped, [300 - 256, 300 - 256]);
  t.end();
});

void t.test('what an operator did is written at every level', (t) => {
  const code = `import { createLog } from '#src/telemetry/log.js';
    import { createLogSwitch, LogSwitch } from '#src/telemetry/log-switch.js';
    const control = new LogSwitch(createLogSwitch());
    const log = createLog('main', control);
    for (const level of ['info', 'warn', 'error']) {
      control.level = level;
      log.info('an event');
      log.record('an operator did something', { who: 'ann', at: level });
      log.record('a sign-in failed', undefined, 'warn');
    }`;
  const { stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', code], {
    encoding: 'utf8',
  });
  const did = { level: 'info', message: 'an operator did something', who: 'ann' };
  const failed = { level: 'warn', message: 'a sign-in failed' };
  t.match(parse(stderr), [
    { message: 'an event' },
    { ...did, at: 'info' },
    failed,
    { ...did, at: 'warn' },
    failed,
    { ...did, at: 'error' },
    failed,
  ]);
  t.equal(parse(stderr).length, 7);
  t.end();
});

const HAS_SCRIPT = spawnSync('script', ['--version']).status === 0;

void t.test('a log in a terminal is for people', HAS_SCRIPT ? {} : { skip: 'no script(1)' }, (t) => {
  const code =
    "const { createLog } = await import('#src/telemetry/log.js');" +
    "createLog('main').info('an operator changed something', { who: 'ann', changes: 'long', hash: 'abc' });";
  // As of a gateway process: the log is another descriptor, and its own standard error is none.
  const command = `TOLLGATE_LOG_DESCRIPTOR=4 "$NODE" --input-type=module --eval "$CODE" 4>&2 2>/dev/null`;
  const env = { ...process.env, NODE: process.execPath, CODE: code, NO_COLOR: '1', FORCE_COLOR: undefined };
  const { stdout } = spawnSync('script', ['-qec', command, '/dev/null'], { encoding: 'utf8', env });
  t.match(stdout, /^\[[\d:.]+\] INFO: an operator changed something \{"thread":"main","who":"ann"\}/m);
  t.end();
});
