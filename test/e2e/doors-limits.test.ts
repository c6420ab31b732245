/**
 * Limits and money by each door, at each kind of upstream: as many calls are admitted as fit, refusals have
 * the door's own form, the books are exact after random calls, and repeats with an Idempotency-Key get the
 * same bytes for one charge.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import type { Test } from 'tap';
import { DOOR_NAMES, DOOR_PATHS } from '#src/core/door-names.js';
import { PROMPT_TOKENS_BESIDE_DOCUMENT } from '#src/core/limits.js';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import {
  callAt,
  callOf,
  checkDoorError,
  costOf,
  DOOR_CASES,
  DOOR_ENV,
  hasStreams,
  isAnthropic,
  isFree,
  isWholeStream,
  modelsOf,
  pathOf,
  startDoorMocks,
  steeringOf,
  WAYS,
  wayName,
  type Way,
} from '../support/doors.js';
import { SPEECH } from '../support/door-speech.js';
import { checkError, type ErrorName } from '../support/error-answer.js';
import { FaultServer, head, send, type FaultScript } from '../support/fault-server.js';
import { eventually, startGateway, type Gateway } from '../support/gateway.js';
import type { Answer } from '../support/http.js';
import { SlowReader } from '../support/slow-reader.js';
import { newSeed, randomOf } from '../support/random.js';

const LIMIT = 4;
const AT_ONCE = 16;
/** Longer than all calls of a way take to arrive. */
const SLOW = steeringOf('&first_byte_ms=2500');
const QUICK = steeringOf();
const OUTPUT_TOKENS = 50;
const RANDOM_CALLS = 24;
const LEAVE_MS_MAX = 150;
const CREDIT = '10.00';

const LOOSE = { requests_per_minute: 100_000, calls_per_day: 100_000 };

/** The worst case that a call reserves of the tokens of a minute: its bytes, bound, a query read twice. */
function tokensOf(way: Way): number {
  const body = JSON.stringify(callOf(way, SLOW, { outputTokensMax: OUTPUT_TOKENS }));
  const repeated = way.door === 'rerank' ? SLOW.length + PROMPT_TOKENS_BESIDE_DOCUMENT : 0;
  return body.length + repeated + (DOOR_CASES[way.door].bound === undefined ? 0 : OUTPUT_TOKENS);
}

const isPaid = (way: Way): boolean => !isFree(way);

interface Limit {
  readonly name: string;
  readonly prompt: string;
  readonly code: ErrorName;
  readonly plan: (way: Way) => object;
  /** Whether it bounds the calls of this way. */
  readonly bounds: (way: Way) => boolean;
}

const LIMITS: readonly Limit[] = [
  {
    name: 'minute',
    prompt: QUICK,
    code: 'rate_limit_exceeded',
    plan: () => ({ ...LOOSE, requests_per_minute: LIMIT }),
    bounds: () => true,
  },
  {
    name: 'day',
    prompt: QUICK,
    code: 'daily_limit_exceeded',
    plan: () => ({ ...LOOSE, calls_per_day: LIMIT }),
    bounds: isPaid,
  },
  {
    name: 'tokens',
    prompt: SLOW,
    code: 'rate_limit_exceeded',
    plan: (way) => ({ ...LOOSE, tokens_per_minute: LIMIT * tokensOf(way) + 1 }),
    bounds: isPaid,
  },
  {
    name: 'flight',
    prompt: SLOW,
    code: 'overloaded',
    plan: () => ({ ...LOOSE, calls_in_flight: LIMIT }),
    // What is counted here is over at once.
    bounds: ({ kind }) => kind !== 'counted',
  },
];

const planOf = (way: Way, { name }: Limit): string => `${wayName(way)}-${name}`;

async function checkLimit(t: Test, gateway: Gateway, way: Way, limit: Limit): Promise<void> {
  const name = planOf(way, limit);
  const { key, accountId } = await gateway.admin.customer({ plan: name });
  const answers = await Promise.all(
    Array.from({ length: AT_ONCE }, () =>
      callAt(gateway, key, way, limit.prompt, { outputTokensMax: OUTPUT_TOKENS }),
    ),
  );
  const served = answers.filter(({ status }) => status === 200);
  const fitting = limit.bounds(way) ? LIMIT : AT_ONCE;
  if (limit.bounds(way) || limit.name !== 'flight')
    t.equal(served.length, fitting, `${name}: ${answers.map(({ status }) => status).join()}`);
  for (const answer of served) t.ok(DOOR_CASES[way.door].textOf(answer).length > 0, name);
  for (const answer of answers.filter(({ status }) => status !== 200)) {
    checkDoorError(t, way, answer, limit.code, name);
    t.match(answer.headers['x-ratelimit-limit'], /^\d+$/, `${name}: limit`);
    if (isAnthropic(way)) t.match(answer.headers, { 'anthropic-ratelimit-requests-limit': /^\d+$/ }, name);
    if (limit.name === 'minute') t.equal(answer.headers['x-ratelimit-remaining'], '0', name);
  }
  const account = await settled(gateway, accountId, name);
  t.equal(account.calls_today, isFree(way) ? 0 : LIMIT, `${name}: refused ones are no calls of the day`);
  t.equal(picoUnitsOf(account.spent), BigInt(LIMIT) * costOf(way), `${name}: spent`);
}

const settled = async ({ admin }: Gateway, accountId: string, name: string) =>
  eventually(`nothing held: ${name}`, async () => {
    const account = await admin.account(accountId);
    return account.held === '0.00' ? account : undefined;
  });

interface Line {
  readonly request_id: string;
  readonly account: string;
  readonly outcome: string;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly source: string | null;
  readonly cost: string;
}

const linesIn = (path: string): Line[] =>
  readFileSync(path, 'utf8')
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Line);

/** Random calls, some at once. Returns how many were sent, and left, and those that were answered whole. */
async function randomCalls(
  t: Test,
  gateway: Gateway,
  key: string,
  way: Way,
  next: () => number,
): Promise<{ sent: number; left: number; served: Answer[] }> {
  const name = wayName(way);
  const served: Answer[] = [];
  let sent = 0;
  let left = 0;
  const kept = new Map<string, string>();
  const one = async (index: number): Promise<void> => {
    const stream = hasStreams(way) && next() < 0.5;
    const kind = next();
    if (kind < 0.2) {
      sent += 1;
      const answer = await callAt(gateway, key, way, steeringOf('&status=500'), { stream });
      if (!isFree(way)) checkDoorError(t, way, answer, 'provider_unavailable', name);
      else served.push(answer);
    } else if ((kind < 0.4 && stream) || (index === 0 && hasStreams(way))) {
      sent += 1;
      left += 1;
      const body = callOf(way, steeringOf('&chunks=200&chunk_ms=20&bytes=4000'), { stream: true });
      const reader = new SlowReader(gateway.port, key, body, 65_536, false, {}, pathOf(way));
      await eventually('the first byte', () => (reader.readBytes > 0 ? true : undefined));
      await sleep(next() * LEAVE_MS_MAX);
      reader.leave();
    } else {
      const id = kind < 0.7 ? { 'idempotency-key': `${name}-${index % 5}` } : {};
      // The same key is the same body, whole: a stream would be another.
      const options = { headers: id, stream: stream && kind >= 0.7 };
      const answer = await callAt(gateway, key, way, QUICK, options);
      if (answer.status === 409) {
        checkDoorError(t, way, answer, 'request_in_progress', name);
        return;
      }
      t.equal(answer.status, 200, `${name}: ${answer.body.slice(0, 200)}`);
      if (options.stream) t.ok(isWholeStream(way, answer.body), `${name}: ${answer.body.slice(-200)}`);
      const mark = id['idempotency-key'];
      if (answer.headers['idempotent-replayed'] !== undefined) {
        t.equal(answer.body, kept.get(mark!) ?? answer.body, `${name}: the stored response`);
        return;
      }
      if (mark !== undefined) {
        t.notOk(kept.has(mark), `${name}: ${mark} is called once`);
        kept.set(mark, answer.body);
      }
      sent += 1;
      served.push(answer);
    }
  };
  for (let index = 0; index < RANDOM_CALLS; index += 4)
    await Promise.all([0, 1, 2, 3].map((place) => one(index + place)));
  return { sent, left, served };
}

async function checkMoney(t: Test, gateway: Gateway, way: Way, seed: number, log: string): Promise<void> {
  const name = wayName(way);
  const { key, accountId } = await gateway.admin.customer({ credit: CREDIT });
  const { sent, left, served } = await randomCalls(t, gateway, key, way, randomOf(seed));
  const account = await settled(gateway, accountId, name);
  const money = (text: string): bigint => picoUnitsOf(text)!;
  const { credited, balance, held, spent } = account;
  t.equal(money(credited), money(balance) + money(held) + money(spent), `${name}: the law`);
  const lines = await eventually(`${sent} lines of ${name}`, () => {
    const own = linesIn(log).filter((line) => line.account === accountId);
    return own.length >= sent ? own : undefined;
  });
  t.equal(lines.length, sent, `${name}: a line for each call`);
  let sum = 0n;
  let leftLines = 0;
  for (const line of lines) {
    const isServed = served.some(({ headers }) => headers['x-request-id'] === line.request_id);
    const tokens = [line.prompt_tokens, line.completion_tokens] as const;
    const cost = line.outcome === 'provider_unavailable' ? 0n : costOf(way, isServed ? undefined : tokens);
    t.equal(money(line.cost), cost, `${name}: ${JSON.stringify(line)}`);
    if (line.outcome === 'served' && !isServed) {
      leftLines += 1;
      t.equal(line.source, 'estimated', `${name}: what came until then`);
      t.ok(cost > costOf(way, [0, 0]), `${name}: ${line.cost}`);
    }
    sum += cost;
  }
  t.equal(leftLines, left, `${name}: those that were left`);
  t.equal(money(spent), sum, `${name}: spent`);
  const usage = await gateway.admin.usageOf(accountId);
  t.equal(money(usage!.cost), sum, `${name}: usage`);
}

void t.test('limits and money by each door', { timeout: 180_000 }, async (t) => {
  t.same([...new Set(WAYS.map(({ door }) => door))], [...DOOR_NAMES], 'every door has its ways');
  const { originOf, mocks } = await startDoorMocks(t, ['--chunks', '10']);
  const gateway = await startGateway(t, {
    env: DOOR_ENV,
    config: {
      listen: { listeners: 2 },
      workers: 2,
      models: modelsOf(originOf),
      plans: [
        { id: 'ample', ...LOOSE },
        ...WAYS.flatMap((way) => LIMITS.map((limit) => ({ id: planOf(way, limit), ...limit.plan(way) }))),
      ],
      usage_log: { path: 'usage.ndjson' },
      flush_interval_ms: 100,
    },
  });

  for (const limit of LIMITS)
    await t.test(`${limit.name}: ${LIMIT} of ${AT_ONCE} at once`, async (t) => {
      await Promise.all(WAYS.map((way) => checkLimit(t, gateway, way, limit)));
    });

  await t.test('an account without money', async (t) => {
    for (const way of WAYS) {
      const { key, accountId } = await gateway.admin.customer({ credit: '0.00' });
      const answer = await callAt(gateway, key, way, QUICK);
      if (isFree(way)) {
        t.equal(answer.status, 200, `${wayName(way)}: it is free`);
        continue;
      }
      const message = checkDoorError(t, way, answer, 'insufficient_quota', wayName(way));
      t.match(message, 'shorten', `${wayName(way)}: ${message}`);
      t.match(await gateway.admin.account(accountId), { spent: '0.00', held: '0.00', calls_today: 0 });
    }
  });

  await t.test('a model that is not there, and a wrong body', async (t) => {
    const { key } = await gateway.admin.customer();
    for (const way of WAYS) {
      const unknown = await callAt(gateway, key, way, QUICK, { model: 'none' });
      checkDoorError(t, way, unknown, 'model_not_found', wayName(way));
      const wrong = await gateway.request(key, {
        path: pathOf(way),
        body: { model: wayName(way), stream: 3 },
      });
      checkDoorError(t, way, wrong, 'invalid_parameters', wayName(way));
    }
  });

  await t.test('money after random calls', async (t) => {
    const seed = newSeed();
    t.comment(`seed ${seed}`);
    const log = join(gateway.folder, 'usage.ndjson');
    await Promise.all(WAYS.map((way, index) => checkMoney(t, gateway, way, seed + index, log)));
  });

  for (const mock of mocks)
    await eventually(
      'no call is left at an upstream',
      async () => (await mock.stats()).open === 0 || undefined,
    );
  t.equal(await gateway.stop(), 0);
  t.notMatch(gateway.log().join('\n'), /inside of the gateway|invariant/);
});

void t.test('repeats with an Idempotency-Key by each door', { timeout: 180_000 }, async (t) => {
  const SAID = { text: 'hi there', prompt: 7, output: 3 };
  const COSTLY = WAYS.filter((way) => !isFree(way));
  // Upstreams say nothing before the test lets them.
  let gate = Promise.resolve();
  const scripts = COSTLY.map((way): [string, FaultScript] => [
    wayName(way),
    (socket, isStream) => {
      const { whole, stream } = SPEECH[way.speech];
      const body = isStream ? stream!(SAID).join('') : whole(SAID);
      const type = isStream ? 'text/event-stream' : 'application/json';
      const length = String(Buffer.byteLength(body));
      const headers = { 'content-type': type, 'content-length': length, connection: 'close' };
      void gate.then(() => send(socket, [head(200, headers), body], 'close'));
    },
  ]);
  const server = new FaultServer(t);
  const port = await server.scripted(new Map(scripts));
  const plans = [{ id: 'ample', requests_per_minute: 1_000, calls_per_day: 1_000 }];
  const models = modelsOf((way) => `http://127.0.0.1:${port}/${wayName(way)}`);
  const gateway = await startGateway(t, {
    env: DOOR_ENV,
    config: { models, plans, listen: { listeners: 2 } },
  });
  const cells = COSTLY.flatMap((way) =>
    (hasStreams(way) ? [false, true] : [false]).map((stream) => ({ way, stream })),
  );
  t.ok(cells.length > WAYS.length, `${cells.length} cells`);
  for (const { way, stream } of cells) {
    const name = `${wayName(way)}, ${stream ? 'stream' : 'whole'}`;
    const { key, accountId } = await gateway.admin.customer();
    const headers = { 'idempotency-key': 'once' };
    const call = (prompt = 'Hello'): Promise<Answer> =>
      callAt(gateway, key, way, prompt, { stream, headers });
    const asked = (): number => server.requests.get(wayName(way)) ?? 0;
    const askedBefore = asked();
    let open = (): void => undefined;
    gate = new Promise((resolve) => (open = resolve));
    const running = call();
    await eventually(`${name}: the upstream is asked`, () => (asked() > askedBefore ? true : undefined));
    const busy = await call();
    checkDoorError(t, way, busy, 'request_in_progress', `${name}, while it runs`);
    t.equal(busy.headers['retry-after'], '1', name);
    checkDoorError(t, way, await call('?'), 'invalid_parameters', `${name}, another body while it runs`);
    open();
    const first = await running;
    t.equal(first.status, 200, `${name}: ${first.body.slice(0, 200)}`);
    if (stream) t.ok(isWholeStream(way, first.body), `${name}: whole`);
    // Several connections, so that both listeners get some.
    for (let n = 0; n < 4; n++) {
      const again = await call();
      t.equal(again.status, 200, name);
      t.equal(again.body, first.body, `${name}: the same bytes`);
      t.equal(again.headers['content-type'], first.headers['content-type'], name);
      t.equal(again.headers['idempotent-replayed'], 'true', name);
      t.same(
        Object.keys(again.headers).sort(),
        [...Object.keys(first.headers), 'idempotent-replayed'].sort(),
        `${name}: its headers`,
      );
      t.not(again.headers['x-request-id'], first.headers['x-request-id'], `${name}: a request of its own`);
      if (isAnthropic(way)) t.equal(again.headers['request-id'], again.headers['x-request-id'], name);
    }
    checkDoorError(t, way, await call('?'), 'invalid_parameters', `${name}, another body`);
    let requests = 8;
    if (way.door === 'messages') {
      const body = callOf(way, 'Hello', { stream });
      const elsewhere = await gateway.request(key, { path: DOOR_PATHS.chat, headers, body });
      checkError(t, elsewhere, 'invalid_parameters', `${name}, the same body at another door`);
      requests += 1;
    }
    const isInput = way.door === 'embeddings' || way.door === 'rerank';
    const spent = decimalOf(costOf(way, [SAID.prompt, isInput ? 0 : SAID.output]));
    const view = await gateway.admin.account(accountId);
    t.match(view, { spent, held: '0.00', calls_today: 1, requests_this_minute: requests }, name);
    t.equal(asked(), askedBefore + 1, `${name}: one call upstream`);
  }
  t.equal(await gateway.stop(), 0);
});
