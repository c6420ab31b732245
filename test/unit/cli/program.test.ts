/**
 * A command whose output nobody reads ends without a word, as other tools do; one whose output the disk does
 * not take says so in a line.
 */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import t from 'tap';
import { createProgram } from '#src/cli/program.js';

const MAIN = fileURLToPath(new URL('../../../../dist/cli/main.js', import.meta.url));

for (const words of [
  ['config', 'schema'],
  ['config', 'example'],
  ['config', 'check', '--json'],
]) {
  void t.test(`${words.join(' ')}, to a pipe that is closed`, async (t) => {
    const child = spawn(process.execPath, [MAIN, ...words], {
      cwd: t.testdir(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    // Closed before the program has come to its first line.
    child.stdout.destroy();
    const [stderr, [code]] = await Promise.all([
      text(child.stderr),
      once(child, 'exit') as Promise<[number | null]>,
    ]);
    t.equal(stderr, '');
    t.equal(code, 141);
  });
}

void t.test('to a disk that is full', { skip: !existsSync('/dev/full') }, async (t) => {
  const full = openSync('/dev/full', 'w');
  const child = spawn(process.execPath, [MAIN, 'config', 'schema'], {
    cwd: t.testdir(),
    stdio: ['ignore', full, 'pipe'],
  });
  closeSync(full);
  const [stderr, [code]] = await Promise.all([
    text(child.stderr!),
    once(child, 'exit') as Promise<[number | null]>,
  ]);
  t.match(stderr, /^standard output cannot be written, what it has is cut off: ENOSPC[^\n]+\n$/);
  t.equal(code, 1);
});

void t.test('defaults are told, in the help and in docs/commands.md, and once', (t) => {
  const docs = readFileSync('docs/commands.md', 'utf8').replaceAll('\n  ', ' ');
  const visit = (command: Command, name: string): void => {
    for (const { flags, description, defaultValue } of command.options) {
      if (defaultValue === undefined) continue;
      t.notMatch(description, /default/, `${name} ${flags}: Commander adds it`);
      const section = docs.split(`\n### \`${name}\`\n`)[1]?.split('\n### ')[0];
      const told = section?.split('\n- ').find((line) => line.startsWith(`\`${flags}\``));
      t.ok(told?.includes(`(default: ${defaultValue})`), `${name} ${flags} in the docs: ${told}`);
    }
    for (const child of command.commands) visit(child, `${name} ${child.name()}`.trim());
  };
  visit(createProgram(), '');
  t.end();
});

void t.test('help names several words, and fits 80 cells', (t) => {
  const helpOf = (...words: string[]): string =>
    execFileSync(process.execPath, [MAIN, ...words], { encoding: 'utf8' });
  t.equal(helpOf('help', 'keys', 'create'), helpOf('keys', 'create', '--help'));
  t.equal(helpOf('help', 'keys', 'show', 'laptop'), helpOf('keys', 'show', '--help'), 'and runs nothing');
  t.equal(helpOf('keys', 'help', 'show'), helpOf('keys', 'show', '-h'));
  t.equal(helpOf('help'), helpOf('--help'));
  for (const words of [
    ['help', 'keyz'],
    ['help', 'keys', 'shw'],
    ['keyz', '--help'],
    ['keys', 'shw', '--help'],
    ['keys', 'shw', 'laptop', '-h'],
  ])
    t.match(spawnSync(process.execPath, [MAIN, ...words], { encoding: 'utf8' }), {
      status: 2,
      stdout: '',
      stderr: /^error: unknown command '(?:keyz|shw)'\n\(Did you mean (?:keys|show)\?\)\n/,
    });
  for (const words of [
    ['--help'],
    ['keys', '--help'],
    ['config', '--help'],
    ['accounts', 'set-plan', '--help'],
  ])
    for (const line of helpOf(...words)
      .split('\nExample:')[0]!
      .split('\n'))
      t.ok(line.length <= 80, line);
  t.end();
});

void t.test('no error controls the terminal, whatever it repeats', (t) => {
  const escaping = '\u{1b}[2J\u{202e}x';
  const cwd = t.testdir({ 'odd.yaml': `"\\e[2J": 1\n`, 'litellm.yaml': `model_list: []\n"\\e[2J": 1\n` });
  for (const words of [
    [escaping],
    ['keys', escaping],
    ['status', `--${escaping}`],
    ['keys', 'create', '--account', 'a', '--name', 'n', '--expires-in', escaping],
    ['config', 'check', '--config', escaping],
    ['config', 'check', '--config', 'odd.yaml'],
    ['serve', '--config', 'odd.yaml'],
    ['config', 'import-litellm', 'litellm.yaml'],
    ['accounts', 'list', '--data', escaping],
    ['upstreams', 'test', escaping],
  ]) {
    const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...words], {
      cwd,
      encoding: 'utf8',
    });
    t.ok(status === 1 || status === 2, words.join(' '));
    t.match(stderr, /\ufffd\[2J/, words.join(' '));
    t.notMatch(stdout + stderr, /[\u001b\u202e]/, words.join(' '));
  }
  t.end();
});

void t.test('a start says that it may open too few files for its calls', async (t) => {
  const settings = (calls: number): string =>
    `models: [{ id: m, upstreams: [{ url: "echo:" }] }]
plans: [{ id: p, requests_per_minute: 1, calls_per_day: 1 }]
limits: { calls_in_flight: ${calls} }`;
  for (const [calls, warns] of [
    [500, false],
    [501, true],
  ] as const) {
    const child = spawn(
      'sh',
      [
        '-c',
        'ulimit -n 1000; exec "$0" "$@"',
        process.execPath,
        MAIN,
        'serve',
        '--port',
        '0',
        '--admin-port',
        '0',
      ],
      { cwd: t.testdir({ 'tollgate.yaml': settings(calls) }), stdio: ['ignore', 'ignore', 'pipe'] },
    );
    t.teardown(() => child.kill('SIGKILL'));
    let log = '';
    for await (const chunk of child.stderr) {
      log += String(chunk);
      if (log.includes('"message":"gateway serves"')) child.kill('SIGTERM');
    }
    t.equal(
      /"level":"warn"[^\n]*"open_files":1000,"calls_in_flight":501,"wanted":1002,"message":"[^\n]*nofile/.test(
        log,
      ),
      warns,
      log,
    );
  }
});

void t.test('a start with too few addresses for its threads says so', async (t) => {
  // The books take 16 GiB of these 19.1, and Node too much of the others for several threads.
  const command = 'ulimit -v 20000000; exec "$0" "$@"';
  const serve = [MAIN, 'serve', '--port', '0', '--admin-port', '0'];
  const child = spawn('sh', ['-c', command, process.execPath, ...serve], {
    cwd: t.testdir(),
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let log = '';
  for await (const chunk of child.stderr) {
    log += String(chunk);
    if (log.includes('"message":"gateway serves"')) child.kill('SIGTERM');
  }
  // Another Node may take more, so that the books cannot be opened, or less.
  if (log.includes('gateway serves')) t.comment('this Node has room for its threads');
  else
    t.match(
      log,
      /(?:\(signal SIG\w+; it may have 19\.1|cannot be opened: it wants 16\.0) GiB of .*ulimit -v/,
    );
});

void t.test('serve, and not as the first word', async (t) => {
  const child = spawn(process.execPath, [MAIN, '--', 'serve'], { cwd: t.testdir() });
  const [stderr, [code]] = await Promise.all([
    text(child.stderr),
    once(child, 'exit') as Promise<[number | null]>,
  ]);
  t.equal(stderr, 'serve must be the first word: tollgate serve …\n');
  t.equal(code, 2);
});

void t.test('serve with its banner to a disk that is full', { skip: !existsSync('/dev/full') }, async (t) => {
  const full = openSync('/dev/full', 'w');
  const child = spawn(process.execPath, [MAIN, 'serve', '--port', '0', '--admin-port', '0'], {
    cwd: t.testdir(),
    stdio: ['ignore', full, 'pipe'],
  });
  closeSync(full);
  t.teardown(() => child.kill('SIGKILL'));
  let log = '';
  for await (const chunk of child.stderr!) {
    log += String(chunk);
    // The end of its output would be that of the process.
    if (log.includes('the banner cannot be written')) child.kill('SIGTERM');
  }
  t.match(log, /"error":"ENOSPC[^\n]*"message":"the banner cannot be written to standard output"/);
  t.match(log, /"message":"gateway drains"/, 'it served until then');
});
