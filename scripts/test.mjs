/**
 * Runs test files, two processes at a time (TEST_JOBS) and up to four times as many while they leave the
 * processors idle, since most tests wait. Files that do little but wait (WAITING) run beside these. Prints a
 * line for each. `npm test` and its like call it. The files of `unit` share a process with those of their
 * folder (scripts/test-batch.mjs), all others have one of their own.
 *
 *     node scripts/test.mjs SET…             the files of these sets: unit, slow, calls, long, core
 *     node scripts/test.mjs FILE…            these files, as build/test/unit/ledger/window.test.js
 *     node scripts/test.mjs --watch unit     and then those of each folder that changes, until it is
 *                                            interrupted; bundles, which gateways start from, stay
 *
 * The tests are written with tap, and each file prints TAP as a program of its own. tap's runner does not
 * start them, because it gives each process, also each gateway that a test starts, a thread through which
 * every module is loaded: 33 s of CPU for the 14 files of unit/config, 7.7 s without.
 *
 * With TEST_AGAIN=1 a file that failed runs once more by itself after the others, so that a busy machine is
 * not taken for a fault; what passes then counts, and is named `flaky`. NEVER_AGAIN has the files without a
 * second chance.
 *
 * Runs that share a file TEST_TURNS may be at work at the same time: what one runs alone then waits until no
 * other run has anything at work (flock, which ends with its holder).
 *
 * The last line is `N passed, N failed`, which counts files; the exit status is 1 if one failed. The line
 * before tells the time, and the processors' time of what was waited for: a gateway that a test killed is not
 * in it.
 */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, watch as watchFolder } from 'node:fs';
import { cpus, getPriority } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { bundleTap } from './bundle-tap.mjs';

const ROOT = 'build/test';
const BATCH = 'scripts/test-batch.mjs';
const TSC = 'node_modules/@typescript/native/bin/tsc';
/** tap ends a file that hangs after this, and says where it hung; this script does it a little later. */
const TIMEOUT_S = Number((process.env.TAP_TIMEOUT ??= '590'));
const TIMEOUT_MS = (TIMEOUT_S + 10) * 1000;
const AT_ONCE = Number(process.env.TEST_JOBS ?? 2);
const { NODE_EXTRA_CA_CERTS, TEST_TURNS } = process.env;
// Node 20 reads these at each start, 0.05 s of CPU for a system's own. Only npm may need them.
delete process.env.NODE_EXTRA_CA_CERTS;
const RUNS_NPM = 'deploy/package.test.js';
// With it Python compiles the packages of the judges anew at each start, seconds of CPU for some.
delete process.env.PYTHONDONTWRITEBYTECODE;
// Who holds a turn and waits for another waits for ever: no test is to see it.
delete process.env.TEST_TURNS;
/** Other runs are at work too: more than one only if the processors have time. */
const AT_ONCE_LEAST = TEST_TURNS === undefined ? AT_ONCE : 1;
const AT_ONCE_MAX = AT_ONCE === 1 ? 1 : 4 * AT_ONCE;
/** Of WAITING, beside the others. */
const WAITING_AT_ONCE = AT_ONCE === 1 ? 0 : 3 * AT_ONCE;
/**
 * One more process is started if the processors were idle for this part of the last interval: half a core of
 * two, and a file wants 0.4 on average. The interval is longer than a gateway's start, the most that a file
 * asks for.
 */
const IDLE_LEAST = 0.25;
const IDLE_INTERVAL_MS = 1_500;
const WATCH_INTERVAL_MS = 500;
const CLOSE_WAIT_MS = 2_000;
/** Of what a file prints, so much is kept: the end. */
const OUTPUT_CHARS_MAX = 4_000_000;
/** Of a failed file, so many lines of its failed assertions are printed, and of each assertion. */
const LINES_MAX = 80;
const ASSERTION_LINES_MAX = 24;
/** Of a failed file that printed no failed assertion: the end of what it printed. */
const TAIL_LINES = 20;

/**
 * Nothing runs beside these. They look for tens of milliseconds that one thread of a gateway is held up,
 * which other work would hide; `threads` wants two threads at work at the same moment. Files that count, or
 * look at memory or at the order of things, do not belong here.
 */
const ALONE = [/^threads\//, /^e2e\/big-bodies$/, /^hostile\/memory$/];

/** No second chance: what these look for happens seldom, such as a limit that is passed by one. */
const NEVER_AGAIN = [
  /^(durability|fuzz|threads)\//,
  /^e2e\/(books|doors-limits|idempotency|money|processes|quotas|rate-limit|shared|sharing|start-race|upstream-quotas)(-|$)/,
  /^hostile\/(billing|billing-stop)$/,
];

/**
 * In `npm run test:full` only: minutes in all, and most of them about what few changes can break. What
 * `npm test` has keeps its unit tests, and one file of calls for each subject.
 */
const LONG = [
  /^(clients|durability|deploy|exports|judges|threads)\//,
  // Memory, and much load: one subject each.
  /^hostile\/(acknowledged-changes|bodies-in-work|counter|memory)$/,
  /^hostile\/(answers|billing|billing-leave|billing-stop|draining|oidc|parse-turns|texts|wrong-requests)$/,
  /^unit\/(bundle|call-log\/call-log|supervisor\/process-group|upstream\/(tiktoken|token-count))$/,
  /^unit\/(sharing\/(lease-laws|lease-quotas|registry-log|simulation|valkey-.*)|store\/(page-walk|response-table))$/,
  // Several processes and hosts; the browser.
  /^e2e\/(console|sharing|shared|processes|slow)(-|$)/,
  /^e2e\/(bench-smoke|big-bodies|bulk|call-memory|overload|reload-load|soak|start-race|books|traces|kept-connections|hosts-command|upstream-quotas)$/,
  /^e2e\/(credentials|doors-faults|doors-streams|fault-matrix|streams|user-path)$/,
  // What starts many gateways, or waits for what they do by themselves.
  /^e2e\/(cache|containers|late-leases|notify|oidc|order-of-checks|refused-start|reload|tls|upstream-(headers|reset))$/,
  // All doors or providers in turn; `calls` has the shared paths, and hostile upstreams.
  /^e2e\/(doors-limits|messages-clients|providers-.*)$|^fuzz\/(providers|sse-transcripts)$/,
  // What operators do and read, and what a gateway tells of itself. The routes have unit tests.
  /^e2e\/(access-log|account-history|call-record|changes|contents|export|hostile-admin|log-records)$/,
  /^e2e\/(operator|operator-reads|operator-roles|quota-path|thread-failure|workers)$/,
];

/**
 * What may differ between two releases of Node: sockets, files, signals, threads, native packages, compiled
 * code. Calls that only count, charge and translate are not here: of these, `money`, `openai-client` and
 * `error-table` show that all parts work together, and the ledger's and the request's unit tests run the
 * rest.
 */
const CORE = [
  /^hostile\/(acknowledged-changes|answers|bodies-in-work|counter|doors|draining|framing|oidc)$/,
  /^hostile\/(second-meaning|texts|upstreams|wrong-requests)$/,
  /^unit\/(channel|core|http1|ledger|protocol|request|store)\//,
  /^e2e\/(cors|embeddings|error-table|first-start|head|hostile-bodies|leaving-clients|long-heads|metrics)$/,
  /^e2e\/(money|notify|openai-client|refused-start|reload|responses|shutdown|streams|thread-failure|tls)$/,
  /^e2e\/(upstream-headers|upstream-reset)$/,
];

/** Unit tests of seconds each, which start programs or walk a large world: not in `npm run test:unit`. */
const SLOW_UNIT = [
  /^unit\/(readme|gateway\/(admin-service|counter-pool|idempotency-service|reload)|mock\/mock-upstream)$/,
  /^unit\/admin\/(api|call-routes|live-feed\.slow-sockets|oidc|openapi)$/,
  /^unit\/call-log\/(contents-writer|plain-calls|search-time)$/,
  /^unit\/cli\/(account-commands|admin-client|audit-command|group-commands|key-commands|program)$/,
  /^unit\/cli\/(runtime-support|status-text)$/,
  /^unit\/(doors\/simple\/simple-doors|http1\/(client|parser)|ledger\/(journal|ledger|window))$/,
  /^unit\/protocol\/(json-reader|known-members|request-rules|sse)$/,
  /^unit\/providers\/(anthropic\/stream|sdk-fields)$/,
  /^unit\/registry\/(catalog\.cost|registry-keys|registry\.usage)$/,
  /^unit\/request\/(admit|answer-framing|listener-server|response-cache)$/,
  /^unit\/sharing\/(change-follower|equal-share|fallback-coordinator|lease-manager|lease-stock|lmdb-coordinator)$/,
  /^unit\/sharing\/(registry-reseed|shared-registry|spent-order)$/,
  /^unit\/store\/(audit|crash|environment|operator-changes|store-hold)$/,
  /^unit\/supervisor\/(supervisor|file-watch)$/,
  /^unit\/telemetry\/(exposition|history|log|metrics-layout|thread-health)$/,
  /^unit\/upstream\/(chat-session-failover|hostile-answers|large-call|prompt-text|secret-fragments)$/,
];

/**
 * Half a minute and more, of which they use less than a fifth of a core: they wait for clocks or other
 * programs. The longest come first.
 */
const WAITING = [
  'e2e/providers-streams',
  'e2e/sharing-blink',
  'e2e/credentials',
  'e2e/upstream-quotas',
  'e2e/slow-sockets',
  'e2e/rate-limit',
];

/**
 * Half a minute and more, and the last of LONG by name: they are the first of it instead, so that none runs
 * on while nothing else is left.
 */
const EARLY = [
  /^exports\/recipes$|^judges\//,
  /^unit\/(sharing\/(registry-log|valkey-client)|supervisor\/process-group)$/,
];

const isAny = (patterns) => (name) => patterns.some((pattern) => pattern.test(name));
const isLong = isAny(LONG);
const isCore = isAny(CORE);
const isSlowUnit = isAny(SLOW_UNIT);
const isEarly = isAny(EARLY);
/** Of all test files, as `unit/ledger/window`; the compiler leaves what it made of a deleted one. */
const NAMES = readdirSync(ROOT, { recursive: true })
  .filter((path) => path.endsWith('.test.js') && existsSync(`test/${path.replace(/js$/, 'ts')}`))
  .map((path) => path.slice(0, -'.test.js'.length))
  .sort()
  .sort((left, right) => Number(isEarly(right)) - Number(isEarly(left)));

const SETS = {
  unit: (name) => name.startsWith('unit/') && !isLong(name) && !isSlowUnit(name),
  calls: (name) => /^(e2e|fuzz|hostile)\//.test(name) && !isLong(name),
  slow: isSlowUnit,
  long: isLong,
  core: (name) => isCore(name) && !(name.startsWith('unit/') && isLong(name)),
};
const fileOf = (name) => `${ROOT}/${name}.test.js`;

const args = process.argv.slice(2);
const watch = args.includes('--watch');
const named = args
  .filter((arg) => arg !== '--watch')
  .flatMap((arg) => (Object.hasOwn(SETS, arg) ? NAMES.filter(SETS[arg]).map(fileOf) : [arg]));
const files = [...new Set(named)];
if (files.length === 0) {
  console.error(`usage: node scripts/test.mjs [--watch] ${Object.keys(SETS).join('|')}|FILE…`);
  process.exit(2);
}
const alone = new Set(NAMES.filter(isAny(ALONE)).map(fileOf));
const batched = new Set(NAMES.filter(SETS.unit).map(fileOf));
const isOnce = isAny(NEVER_AGAIN);
const again = new Set(
  process.env.TEST_AGAIN === '1' ? NAMES.filter((name) => !isOnce(name)).map(fileOf) : [],
);
const waiting = WAITING.map(fileOf);
await bundleTap();
const ok = await runAll(files);
if (watch) await keepWatching();
else process.exit(ok ? 0 : 1);

/** Runs and reports the files; whether none failed. */
async function runAll(files) {
  const run = { failed: [], skipped: [] };
  const began = { ms: performance.now(), cpuMs: childrenCpuMs() };
  const runNext = async (batch) => {
    if (batch.length === 1) report(run, await runFile(batch[0]));
    else for (const result of await runBatch(batch)) report(run, result);
  };
  const isWaiting = (file) => WAITING_AT_ONCE > 0 && waiting.includes(file) && !alone.has(file);
  const queue = batchesOf(files.filter((file) => !alone.has(file) && !isWaiting(file)));
  const waitingQueue = batchesOf(waiting.filter((file) => isWaiting(file) && files.includes(file)));
  const idle = idleWatch();
  const running = new Set();
  const waitingRunning = new Set();
  const start = (batch, among) => {
    const work = runNext(batch).finally(() => among.delete(work));
    among.add(work);
  };
  const mayStart = (among, least, most) => among.size < least || (among.size < most && idle.ended());
  let endTurn = await turn('--shared');
  while (queue.length + waitingQueue.length + running.size + waitingRunning.size > 0) {
    while (waitingQueue.length > 0 && mayStart(waitingRunning, 1, WAITING_AT_ONCE))
      start(waitingQueue.shift(), waitingRunning);
    while (queue.length > 0 && mayStart(running, AT_ONCE_LEAST, AT_ONCE_MAX)) start(queue.shift(), running);
    await Promise.race([...running, ...waitingRunning, sleep(IDLE_INTERVAL_MS / 4)]);
  }
  endTurn();
  const last = files.filter((file) => alone.has(file));
  if (last.length > 0 || run.failed.some((file) => again.has(file))) endTurn = await turn('--exclusive');
  for (const file of last) await runNext([file]);
  for (const file of run.failed.filter((file) => again.has(file))) {
    const result = await runFile(file);
    report({ failed: [], skipped: [] }, result);
    if (!result.ok) continue;
    run.failed.splice(run.failed.indexOf(file), 1);
    console.log(`flaky  ${file}`);
  }
  endTurn();
  for (const line of run.skipped) console.log(`  skip ${line}`);
  for (const file of run.failed) console.log(`not ok ${file}`);
  const seconds = [performance.now() - began.ms, childrenCpuMs() - began.cpuMs].map((ms) =>
    (ms / 1000).toFixed(0),
  );
  console.log(`${seconds[0]} s, of processors ${seconds[1]} s`);
  console.log(`${files.length - run.failed.length} passed, ${run.failed.length} failed`);
  return run.failed.length === 0;
}

/** Waits for the file TEST_TURNS, if there is one; the result gives it back. */
async function turn(how) {
  if (TEST_TURNS === undefined) return () => undefined;
  const holder = spawn('flock', [how, TEST_TURNS, 'sh', '-c', 'echo; exec cat'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  await new Promise((resolve, reject) => {
    holder.stdout.once('data', resolve);
    holder.once('error', reject);
    holder.once('exit', (code) => reject(new Error(`flock ${TEST_TURNS} ended: ${code}`)));
  });
  return () => holder.stdin.end();
}

/** Of all processes that have ended and were waited for, theirs too. */
function childrenCpuMs() {
  const stat = readFileSync('/proc/self/stat', 'utf8');
  // Behind the name, which may have blanks, the 14th and 15th: hundredths of a second, on every Linux.
  const [user, system] = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .slice(13, 15);
  return (Number(user) + Number(system)) * 10;
}

/**
 * `ended`: whether an interval has ended in which the processors were idle enough; another begins then. What
 * runs with a lower priority, as style does in .ci/run, yields to tests: its time counts as idle. Not if this
 * program has such a priority itself: then that time may be the tests' own.
 */
function idleWatch() {
  const read = () => {
    const times = cpus().map((cpu) => cpu.times);
    const total = times.flatMap((time) => Object.values(time)).reduce((sum, ms) => sum + ms, 0);
    return {
      total,
      idle: times.reduce((sum, time) => sum + time.idle + (getPriority() > 0 ? 0 : time.nice), 0),
      atMs: performance.now(),
    };
  };
  let last = read();
  const ended = () => {
    if (performance.now() - last.atMs < IDLE_INTERVAL_MS) return false;
    const [before, now] = [last, (last = read())];
    return now.idle - before.idle >= IDLE_LEAST * (now.total - before.total);
  };
  return { ended };
}

/** The files of each process: those of `unit` by folder, the others each by itself. */
function batchesOf(files) {
  const folders = new Map();
  const batches = [];
  for (const file of files) {
    if (!batched.has(file)) {
      batches.push([file]);
      continue;
    }
    const folder = file.split('/')[3];
    if (!folders.has(folder)) batches.push(folders.set(folder, []).get(folder));
    folders.get(folder).push(file);
  }
  return batches;
}

/** Compiles what changes, and runs the unit tests of a folder in which a module or a test changed. */
async function keepWatching() {
  for (const project of ['tsconfig.json', 'test/tsconfig.json']) {
    const args = [TSC, '-p', project, '--watch', '--preserveWatchOutput'];
    spawn(process.execPath, args, { stdio: 'inherit' });
  }
  const changed = new Set();
  const note = (_, path) => path?.endsWith('.js') && path.includes('/') && changed.add(path.split('/')[0]);
  watchFolder('dist', { recursive: true }, note);
  watchFolder(`${ROOT}/unit`, { recursive: true }, note);
  for (;;) {
    await sleep(WATCH_INTERVAL_MS);
    if (changed.size === 0) continue;
    const again = files.filter((file) => changed.has(file.split('/')[3]));
    changed.clear();
    if (again.length > 0) await runAll(again);
  }
}

function report({ failed, skipped }, { file, ok, output, durationMs }) {
  console.log(`${ok ? '    ok' : 'not ok'} ${(durationMs / 1000).toFixed(1).padStart(6)} s  ${file}`);
  for (const [, name, reason] of output.matchAll(/^ *ok \d+ - (.*) # SKIP ?(.*)$/gm)) {
    skipped.push(`${file}: ${name}${reason && `: ${reason}`}`);
  }
  if (ok) return;
  failed.push(file);
  console.log(failures(output).join('\n'));
}

/** What became of each file. Those that a crash of the process left undone are run again. */
async function runBatch(files) {
  const { ok, output, durationMs } = await runFile(BATCH, { TEST_FILES: files.join(' ') });
  const results = [];
  let rest = output;
  for (const file of files) {
    const [line, ms] = new RegExp(`^# (\\d+) ms ${file}\\n`, 'm').exec(rest) ?? [];
    if (line === undefined) break;
    const end = rest.indexOf(line);
    const own = rest.slice(0, end);
    const isWhole = own.includes(` - the end of ${file}`);
    const ok = isWhole && !/^ *not ok /m.test(own);
    const note = isWhole ? '' : `\nits tests did not run`;
    results.push({ file, ok, output: own + note, durationMs: Number(ms) });
    rest = rest.slice(end + line.length);
  }
  const [crashed, ...undone] = files.slice(results.length);
  if (crashed !== undefined) results.push({ file: crashed, ok: false, output: rest, durationMs });
  // The process failed beyond its files' assertions.
  else if (!ok && results.every((result) => result.ok)) Object.assign(results.at(-1), { ok, output: rest });
  return undone.length === 0 ? results : [...results, ...(await runBatch(undone))];
}

/** What became of one file: its exit status, and what it printed on both streams. */
function runFile(file, more = file.endsWith(RUNS_NPM) ? { NODE_EXTRA_CA_CERTS } : {}) {
  return new Promise((resolve) => {
    const begin = performance.now();
    const env = { ...process.env, ...more };
    const child = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'pipe'], env });
    const timer = setTimeout(() => child.kill('SIGKILL'), TIMEOUT_MS);
    let output = '';
    const keep = (text) => (output = (output + text).slice(-OUTPUT_CHARS_MAX));
    child.stdout.setEncoding('utf8').on('data', keep);
    child.stderr.setEncoding('utf8').on('data', keep);
    child.on('exit', (code, signal) => {
      clearTimeout(timer);
      if (signal !== null) output += `\nended by ${signal}`;
      const finish = () => resolve({ file, ok: code === 0, output, durationMs: performance.now() - begin });
      child.on('close', finish);
      // A process that the file left behind holds the streams for longer.
      setTimeout(finish, CLOSE_WAIT_MS).unref();
    });
  });
}

/** The failed assertions of a file's TAP with what follows each; the end of its output if there are none. */
function failures(output) {
  const lines = output.split('\n');
  const shown = [];
  let left = 0;
  for (const line of lines) {
    if (/^ *not ok /.test(line)) left = ASSERTION_LINES_MAX;
    else if (/^ *ok /.test(line)) left = 0;
    if (left-- > 0 && shown.length < LINES_MAX) shown.push(line);
  }
  return shown.length > 0 ? shown : lines.slice(-TAIL_LINES);
}
