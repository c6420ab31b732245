/**
 * Stored responses whose records are not what was written: bits turned, cut, exchanged, of another kind, from
 * elsewhere. None reaches a caller. None stops the response cache, which keeps responses again after that; a
 * replay by Idempotency-Key of a damaged one is refused and never made again, and flushes go on.
 */
import { MessageChannel } from 'node:worker_threads';
import { open, type Key, type RootDatabase } from 'lmdb';
import t, { type Test } from 'tap';
import { asAccountIndex, asWallMs } from '#src/core/units.js';
import { IdempotencyChannel } from '#src/channel/idempotency-channel.js';
import type { CacheMessage, CacheReply } from '#src/channel/cache-messages.js';
import { AskPort } from '#src/core/ask-port.js';
import { CacheService } from '#src/gateway/cache-service.js';
import { IdempotencyService } from '#src/gateway/idempotency-service.js';
import { CollectBudget } from '#src/request/collected-response.js';
import { bodyDigestOf, KeyedCall } from '#src/request/idempotency.js';
import type { ResponseRecord } from '#src/registry/stored-response.js';
import type { Catalog } from '#src/registry/catalog.js';
import { cacheKeyOf, nameOfResponse, type ResponseKey } from '#src/registry/stored-response.js';
import { Store } from '#src/store/store.js';
import { storePath } from '#src/store/store-file.js';
import { ListLog, StoppedClock } from '../unit/store/support.js';
import { newSeed, pick, type Random, randomOf } from '../support/random.js';

const ROUNDS = 30;
const RECORDS = 24;
const MODEL = 'm';
/** As far as the service reads it. */
const CATALOG = {
  models: [{ id: MODEL, listed: true, cache: { ttlMs: 3_600_000, revision: '1', scope: 'account' } }],
} as unknown as Catalog;

type Port = AskPort<ResponseKey, CacheReply, CacheMessage>;

interface World {
  readonly port: Port;
  readonly service: CacheService;
  readonly log: ListLog;
  readonly close: () => Promise<void>;
}

function openWorld(path: string): World {
  const store = new Store(path);
  const log = new ListLog();
  const service = new CacheService({ store, clock: new StoppedClock(), log });
  service.applySettings(CATALOG, 1024 * 1024);
  const { port1, port2 } = new MessageChannel();
  service.attach(0, port1);
  const port: Port = new AskPort(port2);
  return {
    port,
    service,
    log,
    close: async () => {
      service.detach(0);
      port.close();
      await store.close();
    },
  };
}

type Row = readonly [key: Key[], value: Buffer];

/** What may have become of one row; undefined: it is as it was. */
const DAMAGES: Readonly<Record<string, (value: Buffer, others: readonly Row[], random: Random) => Buffer>> = {
  'a bit turned': (value, _, random) => {
    const copy = Buffer.from(value);
    copy[Math.floor(random() * copy.length)]! ^= 1 << Math.floor(random() * 8);
    return copy;
  },
  cut: (value, _, random) => value.subarray(0, Math.floor(random() * value.length)),
  'with bytes behind it': (value, _, random) => Buffer.concat([value, bytesOf(random, 9)]),
  'the record of another key': (_, others, random) => pick(random, others)[1],
  noise: (value, _, random) => bytesOf(random, value.length),
  'a number': () => Buffer.from([7]),
  zeros: (value) => Buffer.alloc(value.length),
};

const bytesOf = (random: Random, length: number): Buffer =>
  Buffer.from(Array.from({ length }, () => Math.floor(random() * 256)));

const rawTable = (root: RootDatabase, name: string): RootDatabase<Buffer, Key[]> =>
  root.openDB(name, { encoding: 'binary', keyEncoding: 'ordered-binary' }) as unknown as RootDatabase<
    Buffer,
    Key[]
  >;

/** Damages that part of the rows on disk; the names of those. */
async function damage(
  path: string,
  rate: number,
  random: Random,
  table: 'answers' | 'cached' = 'cached',
): Promise<string[]> {
  const root = open(storePath(path), { noSubdir: true, maxDbs: 64, overlappingSync: false });
  const damaged: string[] = [];
  const cached = rawTable(root, table);
  const rows: Row[] = Array.from(cached.getRange({}), ({ key, value }) => [key, Buffer.from(value)]);
  for (const [key, value] of rows) {
    if (random() > rate) continue;
    const kind = pick(random, Object.keys(DAMAGES));
    const written = DAMAGES[kind]!(value, rows, random);
    if (written.equals(value)) continue;
    cached.putSync(key, written);
    damaged.push(`${key.join('/')}: ${kind}`);
  }
  if (rate < 0.5) {
    await root.close();
    return damaged;
  }
  const ages = rawTable(root, table === 'cached' ? 'cached_ages' : 'answer_ages');
  const aged: Row[] = Array.from(ages.getRange({}), ({ key, value }) => [key, Buffer.from(value)]);
  if (random() < 0.5)
    for (const [key, value] of aged)
      if (random() < 0.2)
        ages.putSync(key, DAMAGES[pick(random, Object.keys(DAMAGES))]!(value, aged, random));
  if (table === 'answers') {
    await root.close();
    return damaged;
  }
  if (random() < 0.3)
    ages.putSync(pick(random, [[1], ['x', 2], [0, -1, 'k'], [1, 2, 3, 4]]), Buffer.from([1]));
  if (random() < 0.3) cached.putSync(pick(random, [[1], ['x', 2], [-5, 'm/k'], [0, 7]]), Buffer.from([1]));
  if (random() < 0.2) rawTable(root, 'meta').putSync('cached_bytes' as never, Buffer.from([0xc0]));
  await root.close();
  return damaged;
}

/** Asks for each key: what comes back must be what was kept. Returns how many were found. */
async function ask(
  t: Test,
  { port }: World,
  kept: ReadonlyMap<string, Buffer>,
  keys: readonly ResponseKey[],
) {
  let found = 0;
  for (const key of keys) {
    const reply = await port.ask(key);
    if (reply.state === 'lead') port.send({ kind: 'abandon', key });
    if (reply.state !== 'found') continue;
    found += 1;
    const { bytes, stream } = reply.response;
    t.ok(kept.get(nameOfResponse(key))?.equals(bytes), `bytes of ${nameOfResponse(key)}`);
    t.equal(stream, key.account === 1, 'its form');
  }
  return found;
}

void t.test('damaged records', async (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random_ = randomOf(seed);
  const path = t.testdir({});
  const keys = Array.from({ length: RECORDS }, (_, n) =>
    cacheKeyOf(asAccountIndex(n % 3), MODEL, n.toString(16).padStart(64, '0')),
  );
  let hits = 0;
  let damages = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const kept = new Map<string, Buffer>();
    const keep = async (world: World): Promise<void> => {
      for (const key of keys) {
        const bytes = Buffer.from(
          JSON.stringify({ round, of: nameOfResponse(key), text: 'x'.repeat(round) }),
        );
        kept.set(nameOfResponse(key), bytes);
        const endedMs = new StoppedClock().nowMs - round;
        world.port.send({
          kind: 'keep',
          key,
          response: { stream: key.account === 1, endedMs, bytes },
          beganMs: endedMs,
        });
      }
      // A reply comes after what was told before.
      await world.port.ask(keys[0]!);
      world.service.onFlushed();
    };
    const first = openWorld(path);
    await keep(first);
    // Tables with a damaged row are emptied, so a second writing is whole.
    await keep(first);
    t.equal(await ask(t, first, kept, keys), RECORDS, `round ${round}: all are kept`);
    await first.close();
    damages += (await damage(path, round % 2 === 0 ? 1 / RECORDS : 0.5, random_)).length;
    const second = openWorld(path);
    hits += await ask(t, second, kept, keys);
    await second.close();
  }
  t.comment(`${damages} damaged, ${hits} of ${RECORDS * ROUNDS} found`);
  t.ok(damages > ROUNDS);
  t.ok(hits > 0, 'what is whole is found as long as nothing damaged was met');
});

void t.test('damaged records of replays', async (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random_ = randomOf(seed);
  const bodyDigest = bodyDigestOf(Buffer.from('{}'));
  const clock = new StoppedClock();
  const endedMs = asWallMs(clock.nowMs - 1);
  let replayed = 0;
  let refused = 0;
  let damages = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const path = t.testdir({});
    const kept: ResponseRecord[] = Array.from({ length: RECORDS }, (_, n) => ({
      account: asAccountIndex(n % 3),
      key: `key-${n}`,
      bodyDigest,
      endedMs,
      stream: n % 2 === 0,
      ...(n % 4 === 0 && { fallback: `model-${n}` }),
      bytes: Buffer.from(JSON.stringify({ round, n, text: 'x'.repeat(round) })),
    }));
    const bounds = { expiredMs: 0, bytesMax: Infinity };
    const first = new Store(path);
    first.commit(() => first.answers.apply({ kept, forgotten: [], bounds }));
    await first.close();
    const damaged = await damage(path, round % 2 === 0 ? 2 / RECORDS : 0.5, random_, 'answers');
    damages += damaged.length;

    const store = new Store(path);
    const service = new IdempotencyService({
      settings: {
        limits: { calls_in_flight: RECORDS } as never,
        idempotency: { keep_hours: 24, store_bytes: 1_000_000, answer_bytes: 10_000 },
      },
      replaysUnwritten: () => true,
      store,
      journals: [{ hasDrained: () => true, hasAppended: () => true }],
      clock,
      log: new ListLog(),
    });
    const { port1, port2 } = new MessageChannel();
    service.attach(0, port1);
    const channel = new IdempotencyChannel(port2, 10_000);
    for (const record of kept) {
      const { account, key, bytes, stream, fallback } = record;
      const what = damaged.find((one) => one.startsWith(`${account}/${key}: `));
      const { rejection, earlier } = await new KeyedCall(key, channel, new CollectBudget()).lock(
        account,
        bodyDigest,
      );
      if (earlier === undefined) {
        refused += 1;
        t.match(rejection?.message, /answered and charged/, `${key} is not made again: ${what}`);
        t.ok(what, `${key} is refused, and its record is damaged`);
        continue;
      }
      replayed += 1;
      t.ok(Buffer.from(earlier.bytes).equals(bytes!), `bytes of ${key}: ${what}`);
      t.equal(earlier.stream, stream);
      t.equal(earlier.fallback, fallback);
    }
    const more = { ...kept[0]!, key: 'one more' };
    store.commit(() => store.answers.apply({ kept: [more], forgotten: [], bounds }));
    store.commit(() => store.answers.apply({ kept: [], forgotten: [], bounds: { ...bounds, bytesMax: 0 } }));
    port1.close();
    port2.close();
    await store.close();
  }
  t.comment(`${damages} damaged, ${replayed} replayed, ${refused} refused`);
  t.ok(replayed > 0 && refused > ROUNDS);
});
