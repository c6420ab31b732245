/**
 * Traffic at a fixed rate, once in peace and once while keys are made, rotated and disabled and the file is
 * reloaded 50 times: no call fails, nobody is admitted who must not be, and the slow responses are not
 * slower. Six seconds by default; full size:
 *
 *     TOLLGATE_RELOAD_RATE=10000 TOLLGATE_RELOAD_SECONDS=30 node build/test/e2e/reload-load.test.js
 */
import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { applyLoad, type LoadResult } from '../../bench/load/load.js';
import { startBed, type Bed } from '../support/bed.js';
import { runCommand } from '../support/command.js';
import { eventually, testSettings, TEST_MODEL } from '../support/gateway.js';
import { steered } from '../support/mock.js';

const SECONDS = Number(process.env.TOLLGATE_RELOAD_SECONDS ?? 4);
const PEACE_SECONDS = Number(process.env.TOLLGATE_RELOAD_SECONDS ?? 1);
const WARM_SECONDS = 1;
const RATE_PER_SECOND = Number(process.env.TOLLGATE_RELOAD_RATE ?? 500);
const CONNECTIONS = 64;
const RELOADS = 50;
/** Of a plan that no reload changes, in a minute and in a day. */
const LIMIT = 40;
/**
 * At full size p99 must not double; `npm test` runs on machines that have other things to do, and looks for a
 * stall.
 */
const NOISE_MS = process.env.TOLLGATE_RELOAD_RATE === undefined ? 2_000 : 1;

const STEADY_PLANS = [
  { id: 'by-minute', requests_per_minute: LIMIT, calls_per_day: 1_000_000 },
  { id: 'by-day', requests_per_minute: 1_000_000, calls_per_day: LIMIT },
];

/** Each turn differs from the one before in a price, a model and a plan. */
function settingsOf(mockUrl: string, turn: number): object {
  const base = testSettings(mockUrl) as { models: object[] };
  const [first, ...others] = base.models;
  return {
    ...testSettings(mockUrl, {
      plans: [...STEADY_PLANS, { id: `turn-${turn % 3}`, requests_per_minute: 1 + turn, calls_per_day: 1 }],
    }),
    models: [
      { ...first, price: { input: String(1 + turn), output: '1' } },
      ...others,
      { ...first, id: `turn-${turn % 3}` },
    ],
  };
}

function load({ gateway }: Bed, key: string, seconds: number): Promise<LoadResult> {
  return applyLoad({
    url: `${gateway.url}/v1/chat/completions`,
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: TEST_MODEL,
      max_tokens: 1,
      messages: [{ role: 'user', content: 'Hello' }],
    }),
    connections: CONNECTIONS,
    seconds,
    ratePerSecond: RATE_PER_SECOND,
  });
}

/** Reloads, evenly over the time of the load; how long each took. */
async function reloadAll(t: Test, { gateway, mock }: Bed): Promise<number[]> {
  const file = join(gateway.folder, 'tollgate.yaml');
  const tookMs: number[] = [];
  const startMs = performance.now();
  for (let turn = 1; turn <= RELOADS; turn++) {
    await sleep(Math.max(0, startMs + (turn * SECONDS * 1_000) / (RELOADS + 1) - performance.now()));
    writeFileSync(`${file}.new`, JSON.stringify(settingsOf(mock.url, turn)));
    renameSync(`${file}.new`, file);
    const sentMs = performance.now();
    const { status, body } = await gateway.admin.send('POST', '/admin/v1/reload');
    tookMs.push(performance.now() - sentMs);
    if (status !== 200 || !body.includes('price')) t.fail(`reload ${turn}: ${status} ${body}`);
  }
  return tookMs.sort((left, right) => left - right);
}

/**
 * Keys come and go until `done`: each is served, and refused after it was rotated or disabled. Returns how
 * many there were.
 */
async function turnKeys(t: Test, { gateway }: Bed, done: Promise<unknown>): Promise<number> {
  let isDone = false;
  void done.finally(() => (isDone = true));
  let keys = 0;
  const over = (): boolean => isDone;
  while (!over()) {
    const first = await gateway.admin.customer();
    const expect = async (what: string, key: string, allowed: readonly number[]): Promise<void> => {
      const answers = await Promise.all(
        [1, 2, 3, 4].map(() => gateway.chat(key, 'Hello', { max_tokens: 1 })),
      );
      for (const { status, body } of answers)
        if (!allowed.includes(status)) t.fail(`${what}: ${status} ${body}`);
    };
    await expect('a new key', first.key, [200]);
    const rotated = await gateway.admin.send('POST', `/admin/v1/keys/${first.keyId}/rotate`, { grace: 0 });
    const second = rotated.json() as { id: string; key: string };
    // 100 ms are allowed; here not even the first may slip through.
    await expect('a key that was rotated without grace', first.key, [401, 403]);
    await expect('the key in its place', second.key, [200]);
    await gateway.admin.disableKey(second.id);
    await expect('a disabled key', second.key, [403]);
    keys++;
    await sleep(50);
  }
  return keys;
}

interface Pressed {
  readonly served: number;
  /** Minutes that were begun; more than one on a busy machine. */
  readonly minutes: number;
}

/** Calls of an account until `done`, and beyond its limit. */
async function press(t: Test, { gateway }: Bed, key: string, done: Promise<unknown>): Promise<Pressed> {
  const startMs = performance.now();
  let isDone = false;
  void done.finally(() => (isDone = true));
  const over = (): boolean => isDone;
  let [served, refused] = [0, 0];
  // On a machine that is slow it has yet to come to its limit.
  while (!over() || refused === 0) {
    const { status, body } = await gateway.chat(key, steered('prompt_tokens=1'), { max_tokens: 1 });
    if (status === 200) served++;
    else if (status === 429) refused++;
    else t.fail(`pressed: ${status} ${body}`);
    await sleep(10);
  }
  return { served, minutes: 1 + Math.floor((performance.now() - startMs) / 60_000) };
}

void t.test('traffic while everything is changed', { timeout: (2 * SECONDS + 600) * 1_000 }, async (t) => {
  const bed = await startBed(t, { plans: STEADY_PLANS });
  const { gateway } = bed;
  const { admin } = gateway;
  const busy = await admin.customer({ credit: '1000000.00' });
  const [byMinute, byDay] = [
    await admin.customer({ plan: 'by-minute' }),
    await admin.customer({ plan: 'by-day' }),
  ];
  const warm = await load(bed, busy.key, WARM_SECONDS);
  t.equal(warm.failures, 0);
  const peace = await load(bed, busy.key, PEACE_SECONDS);

  const reloads = reloadAll(t, bed);
  const [war, tookMs, keys, ofMinute, ofDay] = await Promise.all([
    load(bed, busy.key, SECONDS),
    reloads,
    turnKeys(t, bed, reloads),
    press(t, bed, byMinute.key, reloads),
    press(t, bed, byDay.key, reloads),
  ]);
  const shown = ({ answers, seconds, p50Ms, p99Ms }: LoadResult): string =>
    `${Math.round(answers / seconds)} requests/s, p50 ${p50Ms} ms, p99 ${p99Ms} ms`;
  t.comment(`in peace ${shown(peace)}; with changes ${shown(war)}`);
  t.comment(
    `${RELOADS} reloads, median ${tookMs[RELOADS / 2]!.toFixed(1)} ms, longest ${tookMs.at(-1)!.toFixed(1)} ms; ${keys} keys made, rotated and disabled`,
  );
  for (const [what, result] of Object.entries({ peace, war })) {
    t.same([...result.statuses.keys()], [200], `${what}: every answer is a 200`);
    t.equal(result.failures, 0, `${what}: no connection broke`);
  }
  t.ok(war.p99Ms <= 2 * peace.p99Ms + NOISE_MS, `p99 ${war.p99Ms} against ${peace.p99Ms} ms`);
  t.ok(keys > 0);
  t.equal(ofDay.served, LIMIT, 'the limit of a day was held to the call');
  t.ok(
    ofMinute.served >= LIMIT && ofMinute.served <= LIMIT * ofMinute.minutes,
    `and that of a minute: ${ofMinute.served} in ${ofMinute.minutes}`,
  );

  await eventually('nothing held', async () =>
    (await admin.account(busy.accountId)).held === '0.00' ? true : undefined,
  );
  t.equal(await gateway.stop(), 0);
  const audit = await runCommand(gateway.folder, ['audit']);
  t.equal(audit.code, 0, audit.stdout + audit.stderr);
});
