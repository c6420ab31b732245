/**
 * A listener's cache and the main thread's, with real ports and tables; both ends are in this thread.
 */
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { MessageChannel } from 'node:worker_threads';
import t, { type Test } from 'tap';
import { asAccountIndex } from '#src/core/units.js';
import type { CachedResponse } from '#src/channel/cache-messages.js';
import { CacheService } from '#src/gateway/cache-service.js';
import type { CacheRule, Catalog } from '#src/registry/catalog.js';
import {
  cacheKeyOf,
  modelOfCacheKey,
  nameOfResponse,
  type ResponseKey,
} from '#src/registry/stored-response.js';
import { CollectBudget } from '#src/request/collected-response.js';
import { CachedCall, type Requested, ResponseCache } from '#src/request/response-cache.js';
import { cachedResponseTable } from '#src/store/response-table.js';
import { openTables } from '#src/store/tables.js';
import { ListLog, StoppedClock } from '../store/support.js';
import { CATALOG } from './support.js';

const TTL_MS = 60_000;
const MIB = 1024 * 1024;
const DAY_MS = 86_400_000;
const ACCOUNT = asAccountIndex(1);
/** When a call began that no clearing concerns. */
const AFTER_CLEARINGS = Infinity;
const keyOf = (digit: string, model = 'priced', account = ACCOUNT) =>
  cacheKeyOf(account, model, digit.repeat(64));

/** `bounds`: of the model `priced`. */
const catalogOf = (
  revision = 'r',
  bounds: Pick<CacheRule, 'bytesMax' | 'memoryShare'> = {},
  ttlMs = TTL_MS,
): Catalog => ({
  ...CATALOG,
  models: CATALOG.models.map((model) => ({
    ...model,
    cache: {
      ttlMs,
      isShared: false,
      revision: model.id === 'priced' ? revision : 'same',
      ...(model.id === 'priced' && bounds),
    },
  })),
});

async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await nextTurn();
}

function openWorld(t: Test, listeners = 2, memoryBytes = MIB, path = t.testdir({})) {
  const clock = new StoppedClock();
  const tables = openTables(path);
  const store = {
    commit: <Result>(work: () => Result): Result => tables.environment.write(work),
    freeBytes: () => Infinity,
    cached: cachedResponseTable(tables),
  };
  const log = new ListLog();
  const service = new CacheService({ store, clock, log });
  service.applySettings(catalogOf(), MIB);
  const counts = { entries: 0, bytes: 0, evictions: 0 };
  const channels = Array.from({ length: listeners }, () => new MessageChannel());
  const caches = channels.map(({ port1, port2 }, index) => {
    service.attach(index, port1);
    const cache = new ResponseCache(port2, clock, {
      setCache: (entries, bytes) => Object.assign(counts, { entries, bytes }),
      countCacheEviction: () => (counts.evictions += 1),
    });
    cache.applySettings(catalogOf(), memoryBytes);
    return cache;
  });
  t.teardown(async () => {
    for (const { port1, port2 } of channels) {
      port1.close();
      port2.close();
    }
    await tables.environment.close();
  });
  const response = (text: string) => ({
    stream: false,
    endedMs: clock.wallMs(),
    bytes: new Uint8Array(Buffer.from(text)),
  });
  return { clock, tables, store, service, caches, counts, response, log };
}

const textOf = (requested: Requested): string =>
  requested.state === 'found' ? Buffer.from(requested.response.bytes).toString() : requested.state;

function leads(t: Test, requested: Requested) {
  if (requested.state !== 'lead') throw new Error(`it is told ${requested.state}`);
  t.pass('it leads');
  return requested.flight;
}

function found(cache: ResponseCache, key: ResponseKey): CachedResponse | undefined {
  return cache.find(modelOfCacheKey(key), nameOfResponse(key), TTL_MS);
}

void t.test('one leads, at this listener and at others; all get its response', async (t) => {
  const { caches, response } = openWorld(t);
  const [one, other] = [caches[0]!, caches[1]!];
  const key = keyOf('a');
  const flight = leads(t, await one.request(key, 10));
  const waiting = [one.request(key, 10), one.request(key, 10), other.request(key, 10)];
  await settled();
  one.publish(key, response('whole'), flight, AFTER_CLEARINGS);
  t.same((await Promise.all(waiting)).map(textOf), ['whole', 'whole', 'whole']);
  t.equal(Buffer.from(found(one, key)!.bytes).toString(), 'whole');
  t.equal(Buffer.from(found(other, key)!.bytes).toString(), 'whole');
  t.equal(found(one, keyOf('a', 'priced', asAccountIndex(2))), undefined, 'of another account');
});

void t.test('if the first fails, or its listener dies, the others go on', async (t) => {
  const { caches, service } = openWorld(t);
  const [one, other] = [caches[0]!, caches[1]!];
  const flight = leads(t, await one.request(keyOf('a'), 10));
  const waiting = [one.request(keyOf('a'), 10), other.request(keyOf('a'), 10)];
  await settled();
  one.abandon(flight);
  t.same((await Promise.all(waiting)).map(textOf), ['alone', 'alone']);
  leads(t, await one.request(keyOf('b'), 10));
  const second = other.request(keyOf('b'), 10);
  await settled();
  service.detach(0);
  t.equal(textOf(await second), 'alone');
});

void t.test('nobody waits for a lead that came after its withdrawal', async (t) => {
  const { caches, service } = openWorld(t, 1);
  const late = new MessageChannel();
  t.teardown(() => late.port2.close());
  service.attach(7, late.port1);
  const key = keyOf('a');
  // The main thread gets both in one turn of its event loop, so the reply comes after the withdrawal.
  late.port2.postMessage({ id: 1, ask: key });
  late.port2.postMessage({ id: 1, withdrawn: true });
  await settled();
  t.equal(textOf(await caches[0]!.request(key, 1)), 'lead', 'who asks afterwards leads');
  const other = keyOf('b');
  late.port2.postMessage({ id: 2, ask: other });
  await settled();
  const waits = caches[0]!.request(other, 1).then(textOf);
  await settled();
  late.port2.postMessage({ id: 1, withdrawn: true });
  await settled();
  t.equal(await Promise.race([waits, settled().then(() => 'waits')]), 'waits', 'of another question');
  late.port2.postMessage({ id: 2, withdrawn: true });
  await settled();
  t.equal(await Promise.race([waits, settled().then(() => 'waits')]), 'alone');
});

void t.test('those that wait are bounded, in number and bytes', async (t) => {
  const { caches } = openWorld(t, 1);
  const one = caches[0]!;
  const flight = leads(t, await one.request(keyOf('a'), 10));
  const waiting = Array.from({ length: 1_000 }, () => one.request(keyOf('a'), 10));
  t.equal(textOf(await one.request(keyOf('a'), 10)), 'alone');
  one.abandon(flight);
  await Promise.all(waiting);
  const next = leads(t, await one.request(keyOf('a'), 10));
  const large = one.request(keyOf('a'), 60 * MIB);
  t.equal(textOf(await one.request(keyOf('a'), 5 * MIB)), 'alone');
  one.abandon(next);
  t.equal(textOf(await large), 'alone');
});

void t.test('memory is bounded, the oldest go first; and a response expires', (t) => {
  const { caches, counts, response, clock } = openWorld(t, 1, 10 * 1_024);
  const one = caches[0]!;
  for (const digit of '0123456789abcdef')
    one.publish(keyOf(digit), response('x'.repeat(512)), undefined, AFTER_CLEARINGS);
  t.same(counts, { entries: 10, bytes: 10 * 1_024, evictions: 6 });
  t.equal(found(one, keyOf('5')), undefined);
  t.ok(found(one, keyOf('6')));
  one.publish(keyOf('6'), response('short'), undefined, AFTER_CLEARINGS);
  t.equal(counts.entries, 10, 'one for each key');
  clock.nowMs += TTL_MS - 1;
  t.ok(found(one, keyOf('f')));
  clock.nowMs += 1;
  t.equal(found(one, keyOf('f')), undefined);
  t.equal(counts.entries, 9);
  t.end();
});

void t.test('what was made while the clock was ahead is not served when it is right again', async (t) => {
  const path = t.testdir({});
  const { caches, service, response, clock } = openWorld(t, 1, MIB, path);
  const [one] = caches;
  clock.nowMs += DAY_MS;
  one!.publish(keyOf('a'), response('of tomorrow'), undefined, AFTER_CLEARINGS);
  await settled();
  service.onFlushed();
  t.ok(found(one!, keyOf('a')));
  clock.nowMs -= DAY_MS;
  t.equal(found(one!, keyOf('a')), undefined, 'in memory');
  t.equal(textOf(await one!.request(keyOf('a'), 1)), 'lead', 'on disk');
});

void t.test('cleared while the clock was ahead: what is made after it is right again is kept', async (t) => {
  for (const modelId of [undefined, modelOfCacheKey(keyOf('a'))]) {
    const { caches, service, response, clock } = openWorld(t, 2);
    clock.nowMs += DAY_MS;
    await service.clear(modelId);
    clock.nowMs -= DAY_MS;
    leads(t, await caches[0]!.request(keyOf('a'), 1));
    clock.nowMs += 1;
    caches[0]!.publish(keyOf('a'), response('of today'), undefined, AFTER_CLEARINGS);
    await settled();
    t.equal(textOf(await caches[1]!.request(keyOf('a'), 1)), 'of today');
  }
});

void t.test('a model with a share of the memory keeps to it, and pushes nobody out', (t) => {
  const { caches, counts, response } = openWorld(t, 1);
  const one = caches[0]!;
  const kib = response('x'.repeat(512));
  one.applySettings(catalogOf('r', { memoryShare: 0.3 }), 10 * 1_024);
  for (const digit of '01') one.publish(keyOf(digit, 'free'), kib, undefined, AFTER_CLEARINGS);
  for (const digit of '0123456789abcdef') one.publish(keyOf(digit), kib, undefined, AFTER_CLEARINGS);
  t.same(counts, { entries: 5, bytes: 5 * 1_024, evictions: 13 });
  t.ok(found(one, keyOf('0', 'free')));
  t.equal(found(one, keyOf('c')), undefined);
  t.ok(found(one, keyOf('d')));
  for (const digit of '23456789abcdef') one.publish(keyOf(digit, 'free'), kib, undefined, AFTER_CLEARINGS);
  t.equal(counts.bytes, 10 * 1_024);
  t.equal(found(one, keyOf('f')), undefined, 'the bound is no reservation: all go by age');
  one.publish(keyOf('0'), kib, undefined, AFTER_CLEARINGS);
  one.applySettings(catalogOf('r', { memoryShare: 0.05 }), 10 * 1_024);
  t.equal(found(one, keyOf('0')), undefined, 'a reload lowers it');
  t.end();
});

void t.test('on disk a model keeps to its bytes, also after a restart', async (t) => {
  const path = t.testdir({});
  const told = async ({ caches: [cache] }: ReturnType<typeof openWorld>, digits: string, model?: string) => {
    const states = [];
    for (const digit of digits) states.push((await cache!.request(keyOf(digit, model), 1)).state);
    return states.join(' ');
  };
  const before = openWorld(t, 1, 0, path);
  const catalog = catalogOf('r', { bytesMax: 3_000 });
  const publish = (world: typeof before, digits: string, model?: string): void => {
    for (const digit of digits) {
      world.clock.nowMs += 1;
      world.caches[0]!.publish(
        keyOf(digit, model),
        world.response('x'.repeat(488)),
        undefined,
        AFTER_CLEARINGS,
      );
    }
  };
  before.service.applySettings(catalog, MIB);
  publish(before, '012', 'free');
  publish(before, '0123456789');
  await settled();
  before.service.onFlushed();
  t.equal(before.service.storedBytes, 6_000, 'three of each');

  const after = openWorld(t, 1, 0, path);
  after.clock.nowMs = before.clock.nowMs;
  after.service.applySettings(catalog, MIB);
  publish(after, 'ab');
  publish(after, '9');
  await settled();
  after.service.onFlushed();
  t.equal(after.service.storedBytes, 6_000);
  t.equal(await told(after, '012', 'free'), 'found found found');
  t.equal(await told(after, '789ab'), 'lead lead found found found');

  await after.service.clear('priced');
  t.equal(after.service.storedBytes, 3_000);
  publish(after, 'cdef');
  await settled();
  after.service.onFlushed();
  t.equal(await told(after, 'cdef'), 'lead found found found', 'what was cleared no longer counts');
  after.service.applySettings(catalog, 4_000);
  publish(after, '0');
  await settled();
  after.service.onFlushed();
  t.equal(after.service.storedBytes, 4_000, 'the bound of all holds as before');
  t.equal(await told(after, '012', 'free'), 'lead lead found');
});

void t.test('a store that does not know the models of its responses loses them', async (t) => {
  const path = t.testdir({});
  const before = openWorld(t, 1, 0, path);
  const [cache] = before.caches;
  cache!.publish(keyOf('a'), before.response('a'), undefined, AFTER_CLEARINGS);
  await settled();
  before.service.onFlushed();
  before.tables.environment.write(() => {
    before.tables.meta.removeSync('cached_model_bytes');
    before.tables.cachedModelAges.clearSync();
  });
  t.equal((await cache!.request(keyOf('a'), 1)).state, 'found');
  cache!.publish(keyOf('b'), before.response('b'), undefined, AFTER_CLEARINGS);
  await settled();
  before.service.onFlushed();
  t.equal(before.service.storedBytes, 513);
  t.equal((await cache!.request(keyOf('a'), 1)).state, 'lead');
  t.equal((await cache!.request(keyOf('b'), 1)).state, 'found');
});

void t.test('on disk: after a restart, within bytes, until it expires', async (t) => {
  const path = t.testdir({});
  const before = openWorld(t, 1, 0, path);
  for (const digit of 'abc')
    before.caches[0]!.publish(keyOf(digit), before.response('x'.repeat(488)), undefined, AFTER_CLEARINGS);
  await settled();
  before.service.applySettings(catalogOf(), 2_000);
  before.service.onFlushed();
  t.equal(before.service.storedBytes, 2_000, 'two of three');

  const after = openWorld(t, 1, MIB, path);
  after.clock.nowMs = before.clock.nowMs;
  const told = [];
  for (const digit of 'abc') told.push(textOf(await after.caches[0]!.request(keyOf(digit), 1)).length);
  t.equal(told.filter((length) => length === 488).length, 2);
  after.clock.nowMs += TTL_MS;
  t.equal(textOf(await after.caches[0]!.request(keyOf('d'), 1)), 'lead');
  after.service.onFlushed();
  t.equal(after.service.storedBytes, 0);
});

void t.test(
  'expired ones of a busy day are removed by one sweep, unless the store takes nothing',
  async (t) => {
    const { clock, service, store } = openWorld(t);
    const endedMs = clock.wallMs();
    const kept = Array.from({ length: 2_500 }, (_, n) => {
      const key = cacheKeyOf(ACCOUNT, 'priced', n.toString(16).padStart(64, '0'));
      return { ...key, bodyDigest: '00'.repeat(32), endedMs, stream: false, bytes: new Uint8Array(1) };
    });
    const bounds = { expiredMs: 0, bytesMax: Infinity };
    store.commit(() => store.cached.apply({ kept, forgotten: [], bounds }));
    const { commit } = store;
    let commits = 0;
    store.commit = () => {
      commits += 1;
      throw new Error('no space left on device');
    };
    clock.nowMs += TTL_MS;
    service.onFlushed();
    await sleep(250);
    t.equal(commits, 1, 'until the next minute');
    store.commit = commit;
    clock.nowMs += TTL_MS;
    service.onFlushed();
    t.ok(service.storedBytes > 0, 'not all at once');
    for (let tries = 0; tries < 100 && service.storedBytes > 0; tries++) await sleep(50);
    t.equal(service.storedBytes, 0);
  },
);

void t.test('a disk that does not tell its free bytes gets no responses, and ends nothing', async (t) => {
  const { service, store, caches, response } = openWorld(t);
  const [one, other] = [caches[0]!, caches[1]!];
  const key = keyOf('a');
  one.publish(key, response('a'), leads(t, await one.request(key, 10)), AFTER_CLEARINGS);
  await settled();
  store.freeBytes = () => {
    throw new Error('EIO: i/o error, statfs');
  };
  service.onFlushed();
  t.equal(textOf(await other.request(key, 10)), 'lead', 'it is made again');
});

void t.test('cleared by model, by a reload, and what was in work then is not kept', async (t) => {
  const { caches, service, response, clock } = openWorld(t, 1);
  const one = caches[0]!;
  one.publish(keyOf('a'), response('a'), undefined, AFTER_CLEARINGS);
  one.publish(keyOf('b', 'free'), response('b'), undefined, AFTER_CLEARINGS);
  leads(t, await one.request(keyOf('c'), 1));
  const waits = one.request(keyOf('c'), 1);
  service.onFlushed();
  const { clearCount } = one;
  one.clear('priced');
  await service.clear('priced');
  t.equal(textOf(await waits), 'alone');
  t.not(one.clearCount, clearCount);
  t.equal(found(one, keyOf('a')), undefined);
  t.ok(found(one, keyOf('b', 'free')));
  leads(t, await one.request(keyOf('a'), 1));
  clock.nowMs += 1;
  one.publish(keyOf('d'), response('d'), undefined, AFTER_CLEARINGS);
  await settled();
  one.applySettings(catalogOf('other'), MIB);
  service.applySettings(catalogOf('other'), MIB);
  t.equal(found(one, keyOf('d')), undefined);
  t.ok(found(one, keyOf('b', 'free')));
  leads(t, await one.request(keyOf('d'), 1));
});

for (const [cleared, end] of [
  ['priced', 'sweep'],
  [undefined, 'sweep'],
  ['priced', 'stop'],
  [undefined, 'stop'],
] as const)
  void t.test(
    `what was cleared (${cleared ?? 'all'}) while the disk failed is not there after a restart, by a ${end}`,
    async (t) => {
      const path = t.testdir({});
      const { caches, service, store, response, clock } = openWorld(t, 1, 0, path);
      // They do not expire meanwhile.
      service.applySettings(catalogOf('r', {}, DAY_MS), MIB);
      for (const digit of 'ab') caches[0]!.publish(keyOf(digit), response(digit), undefined, AFTER_CLEARINGS);
      await settled();
      service.onFlushed();
      t.equal(service.storedBytes, 2 * 513);
      const { commit } = store;
      store.commit = () => {
        throw new Error('no space left on device');
      };
      await service.clear(cleared);
      t.equal(textOf(await caches[0]!.request(keyOf('a'), 1)), 'lead', 'it is not served');
      store.commit = commit;
      service.onFlushed();
      t.equal(service.storedBytes, 2 * 513, 'not tried at each flush');
      if (end === 'stop') service.close();
      else clock.nowMs += 60_000;
      if (end === 'sweep') service.onFlushed();
      await settled();
      t.equal(service.storedBytes, 0);
    },
  );

/** Puts responses on disk, one for each text of hexadecimal digits. */
function putStored({ store, clock }: ReturnType<typeof openWorld>, digits: readonly string[]): void {
  const endedMs = clock.wallMs();
  const kept = digits.map((digit) => {
    const key = cacheKeyOf(ACCOUNT, 'priced', digit.padStart(64, '0'));
    return { ...key, bodyDigest: '00'.repeat(32), endedMs, stream: false, bytes: new Uint8Array(1) };
  });
  store.commit(() =>
    store.cached.apply({ kept, forgotten: [], bounds: { expiredMs: 0, bytesMax: Infinity } }),
  );
}
/** More than are removed in one event-loop turn. */
const MANY = Array.from({ length: 1_500 }, (_, n) => n.toString(16));

void t.test('a stop while cleared responses are removed removes the others too', async (t) => {
  const world = openWorld(t);
  putStored(world, MANY);
  const clearing = world.service.clear('priced');
  t.equal(world.service.storedBytes, 500 * 513);
  world.service.close();
  t.equal(world.service.storedBytes, 0, 'the next process would serve them');
  await clearing;
});

void t.test('a clearing whose removal fails while an earlier one goes on is not forgotten', async (t) => {
  const world = openWorld(t);
  const { clock, service, store } = world;
  // They do not expire meanwhile.
  service.applySettings(catalogOf('r', {}, DAY_MS), MIB);
  putStored(world, MANY);
  // Has removed the first thousand when it returns.
  const earlier = service.clear('priced');
  putStored(world, ['0']);
  const { commit } = store;
  store.commit = () => {
    throw new Error('no space left on device');
  };
  const later = service.clear('priced');
  store.commit = commit;
  await Promise.all([earlier, later]);
  t.equal(service.storedBytes, 513, 'what was made between the two');
  clock.nowMs += 60_000;
  service.onFlushed();
  await settled();
  t.equal(service.storedBytes, 0);
});

void t.test('a call that began before a clearing of which its listener does not know yet', async (t) => {
  const { caches, service, response, clock } = openWorld(t);
  const [one, other] = [caches[0]!, caches[1]!];
  const budget = new CollectBudget();
  const callOf = async (key: ResponseKey) =>
    new CachedCall(key, one, budget, clock, leads(t, await one.request(key, 1)));
  for (const cleared of ['priced', undefined]) {
    const key = keyOf(cleared === undefined ? 'b' : 'a');
    const before = await callOf(key);
    clock.nowMs += 5;
    // The message to the listener is under way.
    await service.clear(cleared);
    clock.nowMs += 5;
    before.keep(response('old').bytes, false, 0);
    before.publish();
    await settled();
    const requested = await other.request(key, 1);
    t.equal(textOf(requested), 'lead', `of ${cleared ?? 'all'}: nobody else gets it`);
    one.clear(cleared);
    other.clear(cleared);
    const after = await callOf(keyOf(cleared === undefined ? 'd' : 'c'));
    after.keep(response('new').bytes, false, 0);
    after.publish();
    await settled();
    t.equal(textOf(await other.request(keyOf(cleared === undefined ? 'd' : 'c'), 1)), 'new');
  }
});

void t.test(
  'what is made in the millisecond of a clearing is not kept, and nobody waits for it',
  async (t) => {
    const { caches, service, response } = openWorld(t);
    const [one, other] = [caches[0]!, caches[1]!];
    const key = keyOf('a');
    await service.clear('priced');
    const flight = leads(t, await one.request(key, 10));
    const waits = other.request(key, 10).then(textOf);
    await settled();
    one.publish(key, response('made'), flight, AFTER_CLEARINGS);
    t.equal(await Promise.race([waits, settled().then(() => 'waits')]), 'alone');
    const next = other.request(key, 10).then(textOf);
    t.equal(await Promise.race([next, settled().then(() => 'waits')]), 'lead');
  },
);

void t.test('a row that is damaged in any way is no response, and empties the tables', async (t) => {
  const { service, tables, caches, response, log } = openWorld(t, 1, 0);
  const one = caches[0]!;
  const values = [null, 1, 'x', [], {}, { format: 99 }, { format: 1, bytes: 'x' }, new Uint8Array(3)];
  for (const [at, value] of values.entries()) {
    one.publish(keyOf('a'), response('a'), undefined, AFTER_CLEARINGS);
    await settled();
    service.onFlushed();
    t.ok(service.storedBytes > 0);
    const { key } = keyOf('a');
    tables.environment.write(() => tables.cached.putSync([ACCOUNT, key], value));
    const told = await one.request(keyOf('a'), 1);
    t.equal(told.state, 'lead', `value ${at}`);
    if (told.state === 'lead') one.abandon(told.flight);
    await settled();
  }
  t.ok(log.lines.length > 0);
});

void t.test('hits on their way to clients are bounded; short ones do not count', (t) => {
  const one = openWorld(t, 1).caches[0]!;
  const long = Array.from({ length: 129 }, () => new Uint8Array(MIB));
  const [first, last] = [long[0]!, long[128]!];
  for (const bytes of long.slice(0, 128)) t.ok(one.beginSending(bytes));
  t.equal(one.beginSending(last), false);
  t.throws(() => one.endSending(last), /has begun it/, 'what was refused is not being sent');
  t.equal(one.beginSending(new Uint8Array(64 * 1024 + 1)), false);
  const short = new Uint8Array(64 * 1024);
  t.equal(one.beginSending(short), true);
  one.endSending(short);
  t.equal(one.beginSending(last), false);
  one.endSending(first);
  t.equal(one.beginSending(last), true);
  t.end();
});

void t.test('all that wait for one call get its response, however long: it is held once', async (t) => {
  const { caches, response } = openWorld(t, 1, 2 * MIB);
  const one = caches[0]!;
  const key = keyOf('a');
  const flight = leads(t, await one.request(key, 10));
  const waiting = Array.from({ length: 500 }, () => one.request(key, 10));
  one.publish(key, response('x'.repeat(MIB)), flight, AFTER_CLEARINGS);
  const hits = (await Promise.all(waiting)).flatMap((requested) =>
    requested.state === 'found' ? [requested.response] : [],
  );
  hits.push(found(one, key)!);
  t.equal(hits.filter(({ bytes }) => one.beginSending(bytes)).length, 501);
  const others = Array.from({ length: 128 }, () => new Uint8Array(MIB));
  t.equal(others.filter((bytes) => one.beginSending(bytes)).length, 127, 'beside others');
  for (const hit of hits.slice(1)) one.endSending(hit.bytes);
  t.equal(one.beginSending(others[127]!), false, 'until the last client has it');
  one.endSending(hits[0]!.bytes);
  t.equal(one.beginSending(others[127]!), true);
});

void t.test('a store that takes no writes is warned of once, however well it is read', async (t) => {
  const { service, caches, store, response, log, clock } = openWorld(t);
  const commit = store.commit;
  store.commit = () => {
    throw new Error('the disk is full');
  };
  const keep = async (digit: string): Promise<void> => {
    const key = keyOf(digit);
    caches[0]!.publish(key, response('x'), leads(t, await caches[0]!.request(key, 10)), AFTER_CLEARINGS);
    await settled();
    service.onFlushed();
    t.equal(service.storedBytes, 0);
    clock.nowMs += 1;
  };
  for (const digit of ['a', 'b', 'c']) await keep(digit);
  t.equal(log.lines.length, 1);
  store.commit = commit;
  caches[0]!.publish(
    keyOf('d'),
    response('x'),
    leads(t, await caches[0]!.request(keyOf('d'), 10)),
    AFTER_CLEARINGS,
  );
  await settled();
  service.onFlushed();
  t.ok(service.storedBytes > 0);
  store.commit = () => {
    throw new Error('full again');
  };
  await keepAgain();
  t.equal(log.lines.length, 2, 'a new failure is news');

  async function keepAgain(): Promise<void> {
    caches[0]!.publish(
      keyOf('e'),
      response('x'),
      leads(t, await caches[0]!.request(keyOf('e'), 10)),
      AFTER_CLEARINGS,
    );
    await settled();
    service.onFlushed();
  }
});
