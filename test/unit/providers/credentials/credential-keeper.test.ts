/** When the keeper renews, by a clock that stands, against a source that a test scripts. */
import { utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import t from 'tap';
import { CredentialKeeper } from '#src/providers/credentials/credential-keeper.js';
import { CredentialError, type IssuedCredential } from '#src/providers/credentials/credential-source.js';
import {
  CredentialPositions,
  credentialsOf,
  credentialSpecOf,
  type CredentialRecord,
  type CredentialSpec,
} from '#src/providers/credentials/credential-spec.js';
import { ManualClock } from '../../../fixtures/manual-clock.js';
import { temporaryFolder } from '../../../support/gateway.js';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

class World {
  readonly clock = new ManualClock();
  readonly sent: CredentialRecord[] = [];
  readonly lines: string[] = [];
  asked = 0;
  /** What the source does next. */
  script: () => Promise<IssuedCredential> = () => Promise.resolve(this.token(HOUR_MS));
  readonly keeper: CredentialKeeper;

  constructor(spec: CredentialSpec = { kind: 'entra' }, random = 0) {
    const line =
      (level: string) =>
      (message: string, fields: object = {}): unknown =>
        this.lines.push(`${level} ${message} ${JSON.stringify(fields)}`);
    this.keeper = new CredentialKeeper({
      specOf: () => spec,
      send: (records) => this.sent.push(...records),
      clock: this.clock,
      log: { error: line('error'), warn: line('warn') },
      random: () => random,
      open: () =>
        Promise.resolve(() => {
          this.asked += 1;
          return this.script();
        }),
    });
    t.teardown(() => this.keeper.close());
  }

  token(lifeMs: number | undefined, token = `secret-token-${this.asked}`): IssuedCredential {
    const expiresMs = lifeMs === undefined ? undefined : this.clock.wallMs() + lifeMs;
    return { credential: { kind: 'bearer', token }, expiresMs };
  }

  async start(): Promise<void> {
    await this.keeper.ensure([0], 0);
    await this.settle();
  }

  /** Time passes, second by second at its end. */
  async pass(ms: number): Promise<void> {
    this.clock.advance(ms);
    this.keeper.renewDue();
    await this.settle();
  }

  async settle(): Promise<void> {
    for (let turn = 0; turn < 5; turn += 1) await nextTurn();
  }

  get tokens(): (string | undefined)[] {
    return this.sent.map(({ credential }) => (credential?.kind === 'bearer' ? credential.token : undefined));
  }
}

const failing =
  (message = 'the token server answered 500', retryAfterMs?: number) =>
  (): Promise<IssuedCredential> =>
    Promise.reject(new CredentialError(message, 'do this', retryAfterMs));

void t.test('renewed at 80 % of its life, once', async (t) => {
  const world = new World();
  await world.start();
  t.same(world.tokens, ['secret-token-1']);
  await world.pass(0.8 * HOUR_MS - 1);
  t.equal(world.asked, 1);
  await world.pass(1);
  t.same(world.tokens, ['secret-token-1', 'secret-token-2']);
  t.same(
    world.sent.map(({ position, generation }) => [position, generation]),
    [
      [0, 1],
      [0, 2],
    ],
  );
  t.same(world.keeper.current, [world.sent[1]], 'what a new worker gets');
  world.keeper.renewDue();
  await world.settle();
  t.equal(world.asked, 2);
});

void t.test('the share of a life at which it is renewed', async (t) => {
  for (const [lifeMs, random, dueMs] of [
    [HOUR_MS, 0.999, 0.75 * HOUR_MS],
    [20 * MINUTE_MS, 0, 15 * MINUTE_MS],
    [8 * MINUTE_MS, 0, 4 * MINUTE_MS],
    [2_000, 0, 10_000],
    [1_000 * 24 * HOUR_MS, 0, 0.8 * 24 * HOUR_MS],
    [undefined, 0, 5 * MINUTE_MS],
    [-HOUR_MS, 0, 5 * MINUTE_MS],
    [NaN, 0, 5 * MINUTE_MS],
  ] as const) {
    const world = new World(undefined, random);
    world.script = () => Promise.resolve(world.token(lifeMs));
    await world.start();
    await world.pass(dueMs - MINUTE_MS / 20);
    t.equal(world.asked, 1, `${lifeMs} not yet`);
    await world.pass(MINUTE_MS / 10);
    t.equal(world.asked, 2, `${lifeMs} at ${dueMs}`);
  }
});

void t.test('the old one serves while renewals fail, until it expires', async (t) => {
  const world = new World();
  await world.start();
  world.script = failing();
  await world.pass(0.8 * HOUR_MS);
  t.equal(world.asked, 2);
  await world.pass(499);
  t.equal(world.asked, 2);
  await world.pass(1);
  t.equal(world.asked, 3, 'after half a second');
  await world.pass(999);
  t.equal(world.asked, 3);
  await world.pass(1);
  t.equal(world.asked, 4, 'after a second');
  t.equal(world.keeper.current.length, 1);
  t.match(world.keeper.statuses, [{ name: 'entra', ok: true, failures: 3, error: /500/ }]);
  for (let second = 0; second < 719; second += 1) await world.pass(1_000);
  t.same(world.tokens, ['secret-token-1', undefined], 'and then no call uses it');
  t.ok(world.asked < 60, `${world.asked} questions in 12 minutes`);
  t.same(world.keeper.current, []);
  t.match(world.keeper.statuses, [{ ok: false, expiresMs: undefined }]);
  t.equal(world.lines.length, 2, 'one line for the failure, one for the expiry');
  t.match(world.lines[0], /^warn .*old one serves.*answered 500.*do this/);
  t.match(world.lines[1], /^error .*has expired/);
  world.script = () => Promise.resolve(world.token(HOUR_MS, 'another'));
  await world.pass(30_000);
  t.equal(world.tokens.at(-1), 'another');
  t.notMatch(world.lines.join('\n'), /secret-token/);
});

void t.test('a Retry-After is kept, up to five minutes', async (t) => {
  const world = new World();
  world.script = failing('429', 20_000);
  await world.start();
  await world.pass(19_999);
  t.equal(world.asked, 1);
  world.script = failing('429', 1e9);
  await world.pass(1);
  t.equal(world.asked, 2);
  await world.pass(5 * MINUTE_MS);
  t.equal(world.asked, 3);
});

void t.test('waiting for the first ones is bounded', async (t) => {
  const world = new World();
  world.script = failing();
  await world.start();
  t.match(world.lines, [/^error a credential could not be had/]);
  const wait = world.keeper.ensure([0], HOUR_MS);
  for (let attempt = 0; attempt < 3; attempt += 1) await world.pass(1_000);
  await wait;
  t.ok(world.asked >= 3, 'three failures end it');
  const slow = new World();
  slow.script = () => new Promise(() => undefined);
  await slow.keeper.ensure([0], 0);
  t.same(slow.sent, [], 'and so does its time');
});

void t.test('a rejection renews early, and not again and again', async (t) => {
  const world = new World();
  await world.start();
  world.keeper.rejected(0, 7);
  world.keeper.rejected(3, 1);
  await world.settle();
  t.equal(world.asked, 1, 'of another generation');
  for (let call = 0; call < 100; call += 1) world.keeper.rejected(0, 1);
  await world.settle();
  t.same(world.tokens, ['secret-token-1', 'secret-token-2']);
  world.keeper.rejected(0, 1);
  await world.settle();
  t.equal(world.asked, 2, 'the old one');
  world.keeper.rejected(0, 2);
  await world.pass(29_000);
  t.equal(world.asked, 2, 'too soon');
  await world.pass(1_000);
  t.equal(world.asked, 3, 'but not forgotten');
  world.keeper.rejected(0, 3);
  await world.pass(59_000);
  t.equal(world.asked, 3);
  await world.pass(1_000);
  t.equal(world.asked, 4);
});

void t.test('a source that gives the same token again is no news', async (t) => {
  const world = new World();
  const endMs = world.clock.wallMs() + HOUR_MS;
  world.script = () => Promise.resolve({ credential: { kind: 'bearer', token: 'same' }, expiresMs: endMs });
  await world.start();
  for (let minute = 0; minute < 59; minute += 1) await world.pass(MINUTE_MS);
  t.same(world.tokens, ['same']);
  t.ok(world.asked > 3 && world.asked < 10, `asked ${world.asked} times`);
});

void t.test('what no header can hold is not taken', async (t) => {
  const world = new World();
  world.script = () => Promise.resolve(world.token(HOUR_MS, 'evil\r\nx-injected: 1'));
  await world.start();
  t.same(world.sent, []);
  t.match(world.lines, [/what no header can/]);
  t.notMatch(world.lines.join(''), 'evil');
});

void t.test('a wall clock that steps', async (t) => {
  const world = new World();
  await world.start();
  world.clock.setWall(world.clock.wallMs() + 24 * HOUR_MS);
  world.script = failing();
  await world.pass(0);
  t.equal(world.asked, 2, 'forward: renewed at once');
  const back = new World();
  await back.start();
  back.clock.setWall(back.clock.wallMs() - 24 * HOUR_MS);
  await back.pass(0.8 * HOUR_MS);
  t.equal(back.asked, 2, 'back: when its time has passed');
});

void t.test('a file that changes is read again', async (t) => {
  const file = join(temporaryFolder(t), 'account.json');
  writeFileSync(file, '{}');
  const world = new World({ kind: 'google', file });
  await world.start();
  await world.pass(MINUTE_MS);
  t.equal(world.asked, 1);
  utimesSync(file, 1, 1);
  await world.pass(10_000);
  t.equal(world.asked, 2);
  await world.pass(10_000);
  t.equal(world.asked, 2);
});

void t.test('a reload: others come, and those that go are forgotten', async (t) => {
  const world = new World();
  await world.start();
  await world.keeper.ensure([0, 1], 0);
  await world.settle();
  t.equal(world.sent.at(-1)!.position, 1);
  world.keeper.retain([1]);
  t.equal(world.keeper.statuses.length, 1);
  t.equal(world.keeper.current.length, 2, 'for calls in flight');
  await world.pass(2 * MINUTE_MS);
  t.match(world.sent.at(-1), { position: 0, credential: undefined });
  t.equal(world.keeper.current.length, 1);
  await world.keeper.ensure([0, 1], 0);
  await world.settle();
  t.equal(world.sent.at(-1)!.position, 0, 'wanted again');
});

void t.test('which upstreams want which', (t) => {
  const positions = new CredentialPositions();
  const at = (settings: Parameters<typeof credentialSpecOf>[0]): number | undefined => {
    const spec = credentialSpecOf(settings);
    return spec && positions.positionOf(spec);
  };
  t.equal(at({ provider: 'vertex', credentials_file: '/a' }), 0);
  t.equal(at({ provider: 'vertex', credentials_file: '/b' }), 1);
  t.equal(at({ provider: 'vertex', credentials_file: '/a' }), 0);
  t.equal(at({ provider: 'bedrock' }), 2);
  t.equal(at({ provider: 'bedrock', profile: 'p' }), 3);
  t.equal(at({ provider: 'azure' }), 4);
  for (const provider of ['openai', 'anthropic', 'gemini'] as const) t.equal(at({ provider }), undefined);
  t.equal(at({ provider: 'azure', key: 'k' }), undefined);
  t.same(positions.specOf(3), { kind: 'aws', profile: 'p' });
  for (const none of [5, -1, NaN]) t.throws(() => positions.specOf(none), /by its position/);
  const target = (credential: number | undefined) => ({ provider: { credential } });
  t.same(
    credentialsOf([
      { targets: [target(1), target(undefined), { provider: undefined }] },
      { retired: true, targets: [target(0)] },
    ]),
    [1],
  );
  t.end();
});

void t.test('a file that cannot even be looked for fails its own credential alone', async (t) => {
  // ENAMETOOLONG, as EACCES of a folder: more than "no such file". root may search any folder.
  const file = join(temporaryFolder(t), 'x'.repeat(300));
  const world = new World({ kind: 'google', file });
  world.script = failing(`${file} cannot be read`);
  await t.resolves(world.start());
  t.match(world.keeper.statuses, [{ ok: false, error: /cannot be read/ }]);
  t.doesNotThrow(() => world.keeper.rejected(0, 0));
  await t.resolves(world.pass(MINUTE_MS));
  t.ok(world.asked > 1, 'it is tried again');
});

void t.test('a renewal that ends after its credential was dropped changes nothing', async (t) => {
  for (const ends of ['well', 'badly']) {
    const world = new World();
    await world.start();
    let end = (): void => undefined;
    world.script = () =>
      new Promise((resolve, reject) => {
        end = () => (ends === 'well' ? resolve(world.token(HOUR_MS)) : reject(new Error('late')));
      });
    await world.pass(0.8 * HOUR_MS);
    t.equal(world.asked, 2, 'the renewal is running');
    world.keeper.retain([]);
    await world.pass(3 * MINUTE_MS);
    t.same(world.tokens, ['secret-token-1', undefined], 'dropped');
    const lines = world.lines.length;
    end();
    await world.settle();
    t.same(world.tokens, ['secret-token-1', undefined], ends);
    t.equal(world.lines.length, lines);
    t.same(world.keeper.current, []);
  }
});

void t.test('its timer fires with the others of its thread', async (t) => {
  const delaysMs: number[] = [];
  const { setTimeout: original } = globalThis;
  const spy = (act: () => void, delayMs: number): NodeJS.Timeout => {
    delaysMs.push(delayMs);
    return original(act, delayMs);
  };
  t.intercept(globalThis, 'setTimeout', { value: spy, configurable: true });
  const world = new World();
  // Half a period beside the thread's own clock.
  world.clock.advance(500 - ((world.clock.monotonicMs() - performance.now()) % 1_000));
  await world.start();
  const dueMs = performance.now() + delaysMs[0]!;
  const besideMs = Math.abs(dueMs - 1_000 * Math.round(dueMs / 1_000));
  t.ok(besideMs < 200, `it fires ${besideMs} ms beside the tick`);
});

void t.test('an expiry and why it could not be renewed are one line', async (t) => {
  const world = new World();
  world.script = () => Promise.resolve(world.token(2_000));
  await world.start();
  world.script = failing();
  await world.pass(10_000);
  t.same(world.tokens, ['secret-token-1', undefined]);
  t.match(world.lines, [/^error .*has expired.*answered 500.*do this/]);
  t.equal(world.lines.length, 1);
  world.script = failing('the token server is gone');
  await world.pass(MINUTE_MS);
  t.match(world.lines[1], /^error .*could not be had.*is gone/, 'another reason is told');
});

void t.test('a Retry-After is kept while the provider rejects the credential', async (t) => {
  const world = new World();
  await world.start();
  world.script = failing('429', 5 * MINUTE_MS);
  world.keeper.rejected(0, 1);
  await world.settle();
  t.equal(world.asked, 2);
  for (let second = 1; second < 300; second += 1) await world.pass(1_000);
  t.equal(world.asked, 2);
  world.script = () => Promise.resolve(world.token(HOUR_MS));
  await world.pass(1_000);
  t.equal(world.asked, 3);
  t.equal(world.tokens.at(-1), 'secret-token-3');
});

void t.test('after its end it begins nothing', async (t) => {
  const world = new World();
  await world.start();
  world.keeper.close();
  await world.keeper.ensure([0, 1], HOUR_MS);
  await world.settle();
  t.equal(world.asked, 1);
  t.same(world.keeper.statuses, []);
});
