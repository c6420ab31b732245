/**
 * The service with real ports; the listeners' ends are in this thread too, so what is posted waits until
 * somebody looks.
 */
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { MessageChannel } from 'node:worker_threads';
import t, { type Test } from 'tap';
import { AskRejected } from '#src/core/ask-port.js';
import { asAccountIndex } from '#src/core/units.js';
import { IdempotencyService, type IdempotencyServiceOptions } from '#src/gateway/idempotency-service.js';
import { CollectBudget } from '#src/request/collected-response.js';
import { KeyedCall, bodyDigestOf } from '#src/request/idempotency.js';
import { IdempotencyChannel } from '#src/channel/idempotency-channel.js';
import type { Settings } from '#src/config/schema.js';
import type { ResponseRecord } from '#src/registry/stored-response.js';
import { StoreError } from '#src/store/store-file.js';
import { Store } from '#src/store/store.js';
import { ListLog, StoppedClock } from '../store/support.js';

const ACCOUNT = asAccountIndex(3);
const OTHER = asAccountIndex(4);
const BODY = bodyDigestOf(Buffer.from('{}'));
const OTHER_BODY = bodyDigestOf(Buffer.from('{"n":1}'));
const LISTENERS = 2;
const CLAIMS_MAX = 3;
const ANSWER_BYTES = 1_000;
const MIB = 1024 * 1024;

interface World {
  readonly desk: IdempotencyService;
  readonly log: ListLog;
  readonly clock: StoppedClock;
  readonly store: Store;
  readonly links: IdempotencyChannel[];
  /** Positions below it are drained, by listener. */
  readonly drained: number[];
  readonly attach: (index: number) => IdempotencyChannel;
  readonly call: (listener: number, key: string) => KeyedCall;
}

function openWorld(
  t: Test,
  durability: Settings['durability'] = 'interval',
  shared?: (store: Store) => IdempotencyServiceOptions['shared'],
): World {
  const store = new Store(t.testdir({}));
  const clock = new StoppedClock();
  const drained = [0, 0];
  const settings = {
    limits: { calls_in_flight: CLAIMS_MAX } as Settings['limits'],
    idempotency: { keep_hours: 24, store_bytes: 256 * MIB, answer_bytes: ANSWER_BYTES },
  };
  const journals = drained.map((_, index) => ({
    hasDrained: (position: number) => position < drained[index]!,
    hasAppended: (position: number) => position < drained[index]!,
  }));
  const log = new ListLog();
  const desk = new IdempotencyService({
    settings,
    replaysUnwritten: () => durability === 'interval',
    store,
    shared: shared?.(store),
    journals,
    clock,
    log,
  });
  const ends: MessageChannel[] = [];
  const attach = (index: number): IdempotencyChannel => {
    const channel = new MessageChannel();
    ends.push(channel);
    desk.attach(index, channel.port1);
    return new IdempotencyChannel(channel.port2, settings.idempotency.answer_bytes);
  };
  const links = Array.from({ length: LISTENERS }, (_, index) => attach(index));
  t.teardown(() => {
    for (const { port1, port2 } of ends) {
      port1.close();
      port2.close();
    }
    return store.close();
  });
  const call = (listener: number, key: string) => new KeyedCall(key, links[listener]!, new CollectBudget());
  return { desk, log, clock, store, links, drained, attach, call };
}

const claim = (call: KeyedCall, body = BODY, account = ACCOUNT) => call.lock(account, body);
const IN_PROGRESS = { rejection: { code: 'request_in_progress', retryAfterSeconds: 1 } };
const OTHER_BODY_REFUSAL = { rejection: { code: 'invalid_parameters', message: /another request body/ } };

void t.test('the first has the key, everybody else is told that it runs', async (t) => {
  const { call } = openWorld(t);
  const first = call(0, 'k');
  // Two at once: one of them is the first.
  const both = await Promise.all([claim(first), claim(call(1, 'k'))]);
  t.match(both, [{ rejection: undefined }, IN_PROGRESS]);
  t.match(await claim(call(0, 'k')), IN_PROGRESS);
  t.match(await claim(call(1, 'k'), OTHER_BODY), OTHER_BODY_REFUSAL, 'another body is a mistake at once');
  t.same(await claim(call(0, 'k'), BODY, OTHER), {}, "another account's key is another key");
  t.same(await claim(call(0, 'K')), {}, 'and so is another text');
});

void t.test('an answer is given again as soon as its client can have it, by any listener', async (t) => {
  const { call, drained, desk, store } = openWorld(t);
  const first = call(0, 'k');
  t.same(await claim(first), {});
  first.collect(Buffer.from('data: 1\n\n'));
  // No turn of the event loop in between: the note waits in one port while the lock comes by the other.
  first.keep(Buffer.from('data: [DONE]\n\n'), true, 0);
  const { earlier } = await claim(call(1, 'k'));
  t.equal(earlier?.stream, true);
  t.equal(Buffer.from(earlier!.bytes).toString(), 'data: 1\n\ndata: [DONE]\n\n');
  t.match(await claim(call(1, 'k'), OTHER_BODY), OTHER_BODY_REFUSAL);

  t.same(desk.due(), { ...desk.due(), kept: [] }, 'its charge is not drained');
  drained[0] = 1;
  const due = desk.due()!;
  t.match(due.kept, [{ account: ACCOUNT, key: 'k', bodyDigest: BODY, stream: true }]);
  store.commit(() => store.answers.apply(due));
  desk.recordWritten(due);
  t.equal(desk.due(), undefined);
  t.match(await claim(call(0, 'k')), { earlier: { stream: true } }, 'from the disk');
});

void t.test('a flush finds an answer that its listener has just handed over', async (t) => {
  const { call, drained, desk } = openWorld(t);
  const first = call(0, 'k');
  await claim(first);
  first.keep(Buffer.from('x'), false, 0);
  drained[0] = 1;
  t.equal(desk.due()?.kept.length, 1);
});

void t.test('with commit an answer is in progress until it is on disk', async (t) => {
  const { call, drained, desk, store } = openWorld(t, 'commit');
  const first = call(0, 'k');
  await claim(first);
  first.keep(Buffer.from('x'), false, 0);
  t.match(await claim(call(1, 'k')), IN_PROGRESS);
  drained[0] = 1;
  const due = desk.due()!;
  store.commit(() => store.answers.apply(due));
  desk.recordWritten(due);
  t.match(await claim(call(1, 'k')), { earlier: { stream: false } });
  // The charge is taken back after all.
  first.forget(1);
  t.same(await claim(call(1, 'k')), {}, 'what is forgotten is a new call');
});

void t.test('what is given up is a new call', async (t) => {
  const { call } = openWorld(t);
  const first = call(0, 'k');
  await claim(first);
  first.collect(Buffer.from('half'));
  first.giveUp();
  first.giveUp();
  const second = call(1, 'k');
  t.same(await claim(second), {});
  first.giveUp();
  t.match(await claim(call(1, 'k')), IN_PROGRESS, 'the first has nothing more to say about it');
});

void t.test('an answer that is too long is remembered without its bytes', async (t) => {
  const { call } = openWorld(t);
  for (const lastBytes of [ANSWER_BYTES - 600, ANSWER_BYTES - 599]) {
    const first = call(0, `k${lastBytes}`);
    await claim(first);
    first.collect(new Uint8Array(600));
    first.keep(new Uint8Array(lastBytes), true, 0);
    const again = await claim(call(1, `k${lastBytes}`));
    if (lastBytes === 400) t.equal(again.earlier?.bytes.length, ANSWER_BYTES, 'at the bound it is kept');
    else t.match(again, { rejection: { code: 'invalid_parameters', message: /charged.*could not be kept/ } });
  }
});

void t.test('a listener that dies leaves its keys, and what it had charged', async (t) => {
  const { call, desk, drained, attach, links } = openWorld(t);
  const [running, charged, uncharged] = [call(0, 'running'), call(0, 'charged'), call(0, 'uncharged')];
  const other = call(1, 'other');
  for (const one of [running, charged, uncharged]) await claim(one);
  charged.keep(Buffer.from('x'), false, 0);
  uncharged.keep(Buffer.from('x'), false, 1);
  t.same(await claim(other), {});
  drained[0] = 1;
  desk.detach(0);
  links[0] = attach(0);
  t.same(await claim(call(0, 'running')), {});
  t.same(await claim(call(1, 'uncharged')), {});
  t.match(await claim(call(0, 'charged')), { earlier: { stream: false } });
  t.match(await claim(call(0, 'other')), IN_PROGRESS);
});

void t.test('calls in progress and answers on their way are bounded', async (t) => {
  const { call, store, clock } = openWorld(t);
  const BUSY = { rejection: { code: 'overloaded', retryAfterSeconds: 1 } };
  const running = Array.from({ length: CLAIMS_MAX }, (_, n) => call(0, `k${n}`));
  for (const one of running) t.same(await claim(one), {});
  t.match(await claim(call(1, 'more')), BUSY);
  running[0]!.giveUp();
  t.same(await claim(call(1, 'more')), {});

  const record = (key: string): ResponseRecord => ({
    account: ACCOUNT,
    key,
    bodyDigest: BODY,
    endedMs: clock.wallMs(),
    stream: true,
    bytes: new Uint8Array(50 * MIB),
  });
  const bounds = { expiredMs: 0, bytesMax: Infinity };
  store.commit(() => store.answers.apply({ kept: [record('a')], forgotten: [], bounds }));
  const replays = [call(0, 'a'), call(0, 'a')];
  for (const replay of replays) t.match(await claim(replay), { earlier: { stream: true } });
  t.match(await claim(call(1, 'a')), BUSY, '128 MiB hold two of 50');
  replays[0]!.giveUp();
  t.match(await claim(call(1, 'a')), { earlier: { stream: true } });
});

void t.test('answers that are too old are removed once a minute', async (t) => {
  const { call, desk, store, drained, clock } = openWorld(t);
  const first = call(0, 'k');
  await claim(first);
  first.keep(Buffer.from('x'), false, 0);
  await nextTurn();
  drained[0] = 1;
  const due = desk.due()!;
  store.commit(() => store.answers.apply(due));
  desk.recordWritten(due);
  desk.onSweep();
  t.equal(store.answers.oldestMs(), clock.nowMs);
  clock.nowMs += 24 * 3_600_000;
  t.same(await claim(call(0, 'k')), {}, 'a day later the key is new');
  desk.onSweep();
  t.equal(store.answers.oldestMs(), undefined);
});

void t.test('those of a busy day are removed by one sweep, in several transactions', async (t) => {
  const { desk, store, clock } = openWorld(t);
  const endedMs = clock.wallMs();
  const kept = Array.from({ length: 2_500 }, (_, n) => ({
    ...{ account: ACCOUNT, key: `k${n}`, bodyDigest: BODY, endedMs, stream: false },
    bytes: new Uint8Array(1),
  }));
  const bounds = { expiredMs: 0, bytesMax: Infinity };
  store.commit(() => store.answers.apply({ kept, forgotten: [], bounds }));
  clock.nowMs += 24 * 3_600_000;
  desk.onSweep();
  t.ok(store.answers.bytes > 0, 'not all at once');
  for (let tries = 0; tries < 100 && store.answers.bytes > 0; tries++) {
    await sleep(50);
    desk.onSweep();
  }
  t.equal(store.answers.oldestMs(), undefined, 'by the minute of the clock there was one sweep');
});

/** Keys of the host, as another process takes them. */
class HostKeys {
  readonly elsewhere = new Map<string, string>();
  readonly taken = new Set<string>();
  onTake = (): void => undefined;

  acquire({ key }: { key: string }): string | undefined {
    if (this.elsewhere.has(key)) return this.elsewhere.get(key);
    this.onTake();
    this.taken.add(key);
    return undefined;
  }

  release(keys: Iterable<{ readonly key: string }>): void {
    for (const { key } of keys) this.taken.delete(key);
  }
}

void t.test('a key is taken from all processes until its answer is on disk', async (t) => {
  const keys = new HostKeys();
  const { call, desk, drained, store } = openWorld(t, 'interval', () => keys);
  keys.elsewhere.set('theirs', BODY);
  t.match(await claim(call(0, 'theirs')), IN_PROGRESS);
  t.match(await claim(call(0, 'theirs'), OTHER_BODY), OTHER_BODY_REFUSAL);

  const first = call(0, 'k');
  t.same(await claim(first), {});
  t.same([...keys.taken], ['k']);
  first.keep(Buffer.from('x'), false, 0);
  t.match(await claim(call(1, 'k')), { earlier: { stream: false } }, 'this process has it');
  t.ok(keys.taken.has('k'), 'the others have not');
  drained[0] = 1;
  const due = desk.due()!;
  store.commit(() => store.answers.apply(due));
  desk.recordWritten(due);
  t.notOk(keys.taken.has('k'));

  const second = call(0, 'gone');
  await claim(second);
  second.giveUp();
  t.same(await claim(call(1, 'other')), {});
  t.same([...keys.taken], ['other']);
  desk.detach(1);
  t.same([...keys.taken], [], 'its listener has died');
});

void t.test('an answer that another process wrote before it gave the key back is found', async (t) => {
  const keys = new HostKeys();
  const { call, clock, store } = openWorld(t, 'interval', () => keys);
  keys.onTake = () => {
    const record = { account: ACCOUNT, key: 'k', bodyDigest: BODY, stream: false, bytes: Buffer.from('x') };
    const bounds = { expiredMs: 0, bytesMax: MIB };
    const kept = [{ ...record, endedMs: clock.wallMs() }];
    store.commit(() => store.answers.apply({ kept: kept, forgotten: [], bounds }));
  };
  t.match(await claim(call(0, 'k')), { earlier: { stream: false } });
  t.same([...keys.taken], []);
});

void t.test('a key that was forgotten and claimed anew stays taken', async (t) => {
  const keys = new HostKeys();
  const { call, desk, drained } = openWorld(t, 'interval', () => keys);
  const first = call(0, 'k');
  await claim(first);
  first.keep(Buffer.from('x'), false, 0);
  first.forget(1);
  drained[0] = 2;
  const due = desk.due()!;
  t.match(due.forgotten, [{ key: 'k' }]);
  t.same(await claim(call(1, 'k')), {});
  desk.recordWritten(due);
  t.ok(keys.taken.has('k'));
});

void t.test(
  'a call that cannot be decided on is told what failed: the lock or the stored response',
  async (t) => {
    const keys = new HostKeys();
    const { call, log, store } = openWorld(t, 'interval', () => keys);
    // A full disk, as LMDB tells it.
    keys.onTake = () => {
      throw new Error('MDB_MAP_FULL: Environment mapsize limit reached');
    };
    const told = async (key: string): Promise<AskRejected> => {
      try {
        await claim(call(0, key));
      } catch (error) {
        if (error instanceof AskRejected) return error;
      }
      throw new Error('the call was not rejected');
    };
    const unlocked = await told('k');
    t.match(unlocked, { rejection: { code: 'internal_error' } });
    t.match(unlocked.message, /call was not made\. It was not billed/);
    t.match(unlocked.message, /could not record that a call with this Idempotency-Key is in progress/);
    t.match(log.lines, [/^error .*lock/]);
    t.notMatch(log.lines, [/stored response/]);
    t.match(log.fields, [{ error: /MDB_MAP_FULL/ }]);
    for (const key of ['k', 'l', 'm']) await told(key);
    t.equal(log.lines.length, 1, 'the same failure is logged once');

    const fail = keys.onTake;
    keys.onTake = () => undefined;
    t.same(await claim(call(1, 'k')), {}, 'nobody has the lock');
    keys.onTake = fail;
    await told('l');
    await told('l');
    t.match(log.lines.slice(1), [/^error .*lock/], 'it had worked meanwhile');
    await store.close();
    for (const key of ['other', 'other', 'l'])
      t.match(await told(key), {
        message: /could not read its books, .* was not made\. It was not billed/,
      });
    t.match(log.lines.slice(2), [/^error a stored response cannot be read/]);
    t.equal(log.lines.length, 3);
  },
);

void t.test(
  'a damaged response is logged as it is found, and not again for each request with its key',
  async (t) => {
    const { call, log, store } = openWorld(t);
    store.answers.find = ({ key }) => {
      throw new StoreError('damaged', `record ${key} is damaged`);
    };
    const asked = async (key: string): Promise<void> => {
      t.match(await claim(call(0, key)), { rejection: { code: /./ } });
    };
    for (const key of ['k', 'k', 'l', 'l']) await asked(key);
    t.match(log.fields, [{ error: 'record k is damaged' }, { error: 'record l is damaged' }]);
    t.equal(log.lines.length, 2);
  },
);

void t.test('a damaged response that another process has just stored: its call was made', async (t) => {
  const released: string[] = [];
  const { call, log, store } = openWorld(t, 'interval', () => ({
    acquire: () => undefined,
    release: (keys) => void released.push(...Array.from(keys, ({ key }) => key)),
  }));
  store.refresh = () => {
    store.answers.find = ({ key }) => {
      throw new StoreError('damaged', `record ${key} is damaged`);
    };
  };
  const reply = await claim(call(0, 'k'));
  t.match(reply, { rejection: { code: /./ } });
  t.notMatch(reply, { rejection: { message: /was not billed/i } }, 'the other process has billed it');
  t.same(released, ['k']);
  t.same(log.fields, [{ error: 'record k is damaged' }]);
});
