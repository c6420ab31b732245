/**
 * Several gateway processes on one port: all serve, each may die alone, and all are replaced while calls run.
 */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import type { Agent } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { readGatewayFile } from '#src/admin/gateway-file.js';
import { startBed, type Bed } from '../support/bed.js';
import { mostSurelyWithin, type Call } from '../support/call-span.js';
import { runCommand } from '../support/command.js';
import { eventually, HIDDEN_MODEL, TEST_MODEL, testSettings, type Gateway } from '../support/gateway.js';
import { keepAliveAgent, request } from '../support/http.js';
import { scrape } from '../support/metrics.js';
import { steered } from '../support/mock.js';
import { isWholeStream, openStream, readRest } from '../support/sse.js';

interface ProcessView {
  readonly process: number;
  readonly pid: number;
  readonly ready: boolean;
  readonly calls_in_flight: number;
}

interface StatusView {
  readonly pid: number;
  readonly ready: boolean;
  readonly listeners: number;
  readonly outcomes: { readonly ok: number };
  readonly limits: { readonly accounts: number };
  readonly processes: readonly ProcessView[];
}

const statusOf = async ({ admin }: Gateway): Promise<StatusView> =>
  (await admin.send('GET', '/admin/v1/status')).json() as StatusView;

/** Resolves with the status once so many serve. */
const serving = (gateway: Gateway, processes: number): Promise<StatusView> =>
  eventually(`${processes} processes`, async () => {
    const status = await statusOf(gateway);
    return status.processes.filter(({ ready }) => ready).length === processes ? status : undefined;
  });

const STREAM_CHUNKS = 40;
/**
 * The kernel deals them out: that one process of four gets none is to be expected once in ten million times.
 */
const STREAMS = 64;
/** Half a second is usual: another process takes the place of the one that was killed. */
const AWAY_MS_MAX = 20_000;
/**
 * Between calls of one connection: load that leaves the machine some time for the processes that start beside
 * it.
 */
const CALL_PAUSE_MS = 20;

/** Begins a stream of some four seconds; the result tells whether it came whole. */
async function startStream(gateway: Gateway, key: string, agent: Agent | false = false) {
  const { incoming } = await openStream(
    gateway.port,
    key,
    {
      model: TEST_MODEL,
      messages: [{ role: 'user', content: steered(`chunks=${STREAM_CHUNKS}&chunk_ms=100`) }],
      stream: true,
    },
    agent,
  );
  const whole = readRest(incoming).then(
    (text) => isWholeStream(text, STREAM_CHUNKS),
    () => false,
  );
  return { whole };
}

/** Watches that the counters never fall and how long the admin interface was away, until it is stopped. */
function watchAdmin(t: Test, { admin }: Gateway) {
  let on = true;
  t.teardown(() => (on = false));
  const seen = { requests: 0, falls: 0, awayMsMax: 0, scrapes: 0 };
  const watch = async (): Promise<void> => {
    let lastMs = performance.now();
    while (on) {
      try {
        const requests = (await scrape(admin.port)).sum('tollgate_requests_total');
        if (requests < seen.requests) seen.falls += 1;
        seen.requests = requests;
        seen.scrapes += 1;
        seen.awayMsMax = Math.max(seen.awayMsMax, performance.now() - lastMs);
        lastMs = performance.now();
      } catch {
        // Its process was killed; the next one has it soon.
      }
      await sleep(50);
    }
  };
  const watched = watch();
  return async () => {
    on = false;
    await watched;
    return seen;
  };
}

/**
 * Until its parent has seen its end: a process that was killed has its sockets until all its threads have
 * ended.
 */
const lives = (pid: number): boolean => existsSync(`/proc/${pid}`);

void t.test('four serve; each is killed in turn, and only its calls fail', async (t) => {
  const { gateway } = await startBed(t, { processes: 4 });
  const { key } = await gateway.admin.customer();
  const first = await serving(gateway, 4);
  t.equal(first.listeners, 4);
  t.match(first.processes.map(({ process }) => process).sort(), [0, 1, 2, 3]);
  const stopWatching = watchAdmin(t, gateway);
  const { pid: primary } = first;
  const victims = [primary, ...first.processes.map(({ pid }) => pid).filter((pid) => pid !== primary)];
  for (const victim of victims) {
    const streams = await Promise.all(Array.from({ length: STREAMS }, () => startStream(gateway, key)));
    const { processes } = await statusOf(gateway);
    t.ok(
      processes.every(({ calls_in_flight: calls }) => calls > 0),
      `each has a part: ${processes.map(({ calls_in_flight: calls }) => calls).join()}`,
    );
    const its = processes.find(({ pid }) => pid === victim)!.calls_in_flight;
    process.kill(victim, 'SIGKILL');
    await eventually('its end', () => (lives(victim) ? undefined : true));
    for (let call = 0; call < 8; call += 1)
      t.equal((await gateway.chat(key, 'Hello')).status, 200, 'the port serves');
    const whole = await Promise.all(streams.map((stream) => stream.whole));
    t.equal(whole.filter((isWhole) => !isWhole).length, its, 'its calls and no others were cut');
    await serving(gateway, 4);
  }
  const seen = await stopWatching();
  t.equal(seen.falls, 0, 'no counter fell');
  t.ok(seen.requests >= 8 * 4);
  t.ok(
    seen.awayMsMax < AWAY_MS_MAX,
    `the admin interface was away for ${Math.round(seen.awayMsMax)} ms at most`,
  );
  t.equal(await gateway.stop(), 0);
});

/** Calls one after the other, on connections that are kept and on new ones, until `end`. */
function startLoad(t: Test, gateway: Gateway, key: string) {
  const agent = keepAliveAgent(6);
  const faults: string[] = [];
  let calls = 0;
  let on = true;
  t.teardown(() => (on = false));
  const caller = async (own: Agent | undefined): Promise<void> => {
    while (on) {
      try {
        const body = { model: TEST_MODEL, messages: [{ role: 'user', content: 'Hello' }] };
        const { status, body: text } = await gateway.request(key, { agent: own, body });
        calls += 1;
        if (status !== 200) faults.push(`${status} ${text}`);
        await sleep(CALL_PAUSE_MS);
      } catch (error) {
        faults.push(String(error));
      }
    }
  };
  const streamer = async (): Promise<void> => {
    while (on) {
      calls += 1;
      try {
        const { whole } = await startStream(gateway, key);
        if (!(await whole)) faults.push('a stream that is not whole');
      } catch (error) {
        faults.push(String(error));
      }
    }
  };
  const callers = [
    ...Array.from({ length: 6 }, () => caller(agent)),
    caller(undefined),
    streamer(),
    streamer(),
  ];
  return {
    faults,
    end: async () => {
      on = false;
      await Promise.all(callers);
      agent.destroy();
      return calls;
    },
  };
}

const LIMIT = 60;
const MINUTE_MS = 60_000;

/** Calls of a customer that is mostly refused, until the returned function is called: those that were not. */
function hammer(t: Test, gateway: Gateway, key: string) {
  const admitted: Call[] = [];
  let on = true as boolean;
  t.teardown(() => (on = false));
  const hammering = (async () => {
    while (on) {
      const sentMs = performance.now();
      const { status } = await gateway.chat(key, 'Hello');
      if (status === 200) admitted.push({ sentMs, answeredMs: performance.now() });
      await sleep(50);
    }
  })();
  return async () => {
    on = false;
    await hammering;
    return admitted;
  };
}

const replaced = (gateway: Gateway, times: number): Promise<true> =>
  eventually('the end of the replacement', () =>
    gateway.log().filter((line) => line.includes('gateways are replaced')).length === times
      ? true
      : undefined,
  );

function writeSettings({ gateway, mock }: Bed, settings: object): void {
  const file = join(gateway.folder, 'tollgate.yaml');
  writeFileSync(file, JSON.stringify(testSettings(mock.url, settings as Parameters<typeof testSettings>[1])));
}

/**
 * What docs/operations.md says of `net.ipv4.tcp_migrate_req`, where this user may set it: without it a
 * connection that is made in the microseconds in which a listener closes is reset.
 */
function keepsConnecting(t: Test): void {
  const file = '/proc/sys/net/ipv4/tcp_migrate_req';
  try {
    const before = readFileSync(file);
    writeFileSync(file, '1');
    t.teardown(() => writeFileSync(file, before));
  } catch {
    t.comment(`${file} cannot be written`);
  }
}

void t.test(
  'replaced twice under load: no call fails, streams finish, nothing is lost of the figures',
  async (t) => {
    const sixty = { id: 'sixty', requests_per_minute: LIMIT, calls_per_day: 1_000_000 };
    const bed = await startBed(t, { processes: 2, plans: [sixty] });
    const { gateway, mock } = bed;
    const { key } = await gateway.admin.customer();
    const limited = await gateway.admin.customer({ plan: sixty.id });
    keepsConnecting(t);
    const before = await serving(gateway, 2);
    const load = startLoad(t, gateway, key);
    const endLimited = hammer(t, gateway, limited.key);
    const stopWatching = watchAdmin(t, gateway);

    process.kill(gateway.child.pid, 'SIGUSR2');
    await replaced(gateway, 1);
    const between = await serving(gateway, 2);
    const pids = ({ processes }: StatusView) => processes.map(({ pid }) => pid);
    t.notOk(
      pids(between).some((pid) => pids(before).includes(pid)),
      'all are new',
    );

    writeSettings(bed, { processes: 2, plans: [sixty], limits: { accounts: 1_234 } });
    const command = await runCommand(gateway.folder, ['reload', '--restart']);
    t.match(command, {
      code: 0,
      stdout:
        'applied  limits.accounts\nreplacing 2 gateway processes, one by one; tollgate status shows them\n',
    });
    await replaced(gateway, 2);
    const after = await serving(gateway, 2);
    t.equal(after.limits.accounts, 1_234, 'what needs a restart is in force');
    t.notOk(pids(after).some((pid) => pids(between).includes(pid)));

    const admitted = await endLimited();
    t.ok(admitted.length > 0, `${admitted.length} calls of the limited customer`);
    const most = mostSurelyWithin(admitted, MINUTE_MS);
    t.ok(most <= LIMIT, `${most} of ${LIMIT} in a minute`);
    const calls = (await load.end()) + admitted.length;
    const seen = await stopWatching();
    t.same(load.faults, [], load.faults.slice(0, 5).join('; ') || 'no call failed');
    t.equal(seen.falls, 0, 'no counter fell');
    t.ok(
      seen.awayMsMax < AWAY_MS_MAX,
      `the admin interface was away for ${Math.round(seen.awayMsMax)} ms at most`,
    );
    t.equal((await statusOf(gateway)).outcomes.ok, calls, 'every call is in the figures');
    t.ok((await scrape(gateway.admin.port)).sum('tollgate_requests_total') >= calls);
    t.equal((await mock.stats()).requests, calls);
    t.equal(await gateway.stop(), 0);
  },
);

void t.test('a reload reaches all; a wrong one is refused by all; readiness and the end', async (t) => {
  const bed = await startBed(t, { processes: 3 });
  const { gateway } = bed;
  const { key } = await gateway.admin.customer();
  await serving(gateway, 3);
  /** What many new connections are told of a model; they come to all processes. */
  const asked = async (): Promise<Set<number>> => {
    const path = `/v1/models/${HIDDEN_MODEL}`;
    const answers = await Promise.all(
      Array.from({ length: 40 }, () => gateway.request(key, { method: 'GET', path })),
    );
    return new Set(answers.map(({ status }) => status));
  };
  t.same(await asked(), new Set([200]));
  const settings = testSettings(bed.mock.url, { processes: 3 }) as { models: object[] };
  writeFileSync(
    join(gateway.folder, 'tollgate.yaml'),
    JSON.stringify({ ...settings, models: settings.models.slice(0, 1) }),
  );
  t.match((await gateway.admin.send('POST', '/admin/v1/reload', {})).json(), {
    applied: [`models.${HIDDEN_MODEL} (removed)`],
  });
  t.same(await asked(), new Set([404]), 'of every process');
  writeFileSync(join(gateway.folder, 'tollgate.yaml'), '{"processes": 3, "nonsense": 1}');
  t.match(await gateway.admin.send('POST', '/admin/v1/reload', { restart: true }), { status: 400 });

  const readiness = await request({ port: gateway.admin.port, path: '/readyz' });
  t.equal(readiness.status, 200);
  const { processes } = await statusOf(gateway);
  t.equal(await gateway.stop(), 0);
  t.ok(
    processes.every(({ pid }) => !lives(pid)),
    'none is left',
  );
});

/** How many sockets listen on that port of this host. */
function listening(port: number): number {
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const rows = readFileSync('/proc/net/tcp', 'utf8').split('\n').slice(1);
  return rows
    .map((row) => row.trim().split(/\s+/))
    .filter(([, local, , state]) => Boolean(local?.endsWith(suffix)) && state === '0A').length;
}

void t.test(
  'the next primary cannot write its address: it opens one interface, and writes it later',
  async (t) => {
    const { gateway } = await startBed(t, { processes: 2 });
    const { pid: primary, processes } = await serving(gateway, 2);
    const { pid: next } = processes.find(({ pid }) => pid !== primary)!;
    const data = join(gateway.folder, 'data');
    // Stands in for a full disk: the file that is renamed to gateway.json cannot be written.
    const obstacle = join(data, `gateway.json.${next}`);
    mkdirSync(obstacle);
    process.kill(primary, 'SIGKILL');
    const logged = (text: string): number => gateway.log().filter((line) => line.includes(text)).length;
    await eventually(
      'the interface of the next',
      () => logged('gateway has the admin interface') || undefined,
    );
    await serving(gateway, 2);
    // As long as a second try to open it would take.
    await sleep(2_000);
    t.equal(listening(gateway.admin.port), 1);
    t.equal(logged('its address cannot be written'), 1);
    rmdirSync(obstacle);
    await eventually('its address', () => (readGatewayFile(data)?.pid === next ? true : undefined));
    t.equal(await gateway.stop(), 0);
  },
);
