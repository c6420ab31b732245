/** Who is served first, who has to leave, and that nobody is forgotten. */
import t from 'tap';
import type { Clock } from '#src/core/clock.js';
import { UPSTREAM_QUEUE_BYTES_MAX, UPSTREAM_QUEUE_CALL_BYTES } from '#src/core/limits.js';
import { asAccountIndex, asMonotonicMs, asUpstreamScopeIndex, asWallMs } from '#src/core/units.js';
import { QuotaQueue, type WaitingCall } from '#src/upstream/quota-queue.js';

class HeldClock implements Clock {
  ms = 1_000;
  monotonicMs = () => asMonotonicMs(this.ms);
  wallMs = () => asWallMs(this.ms);
}

/** Upstreams with so much room in each scope, and calls that take it. */
function world() {
  const clock = new HeldClock();
  const queue = new QuotaQueue(clock);
  const room = new Map<number, number>();
  const served: string[] = [];
  const rejected: string[] = [];
  /** How often calls were asked for their scopes, and were tried. */
  const work = { asked: 0, tried: 0 };
  const call = (
    name: string,
    { account = 0, scopes = [0], bytes = 0, endMs = Infinity, needs = 1 } = {},
  ): WaitingCall => {
    const waiting: WaitingCall = {
      account: asAccountIndex(account),
      bytes,
      isLate: (nowMs) => nowMs >= endMs,
      waitsFor() {
        work.asked += 1;
        return scopes.map(asUpstreamScopeIndex);
      },
      tryNow() {
        work.tried += 1;
        const scope = scopes.find((scope) => (room.get(scope) ?? 0) >= needs);
        if (scope === undefined) return false;
        room.set(scope, room.get(scope)! - needs);
        served.push(name);
        return true;
      },
      giveUp: () => void rejected.push(name),
    };
    queue.add(waiting);
    return waiting;
  };
  return { clock, queue, room, served, rejected, work, call };
}

const scope = asUpstreamScopeIndex;

void t.test('accounts take turns, and the calls of one keep their order', (t) => {
  const { queue, room, served, call } = world();
  for (const name of ['a1', 'a2', 'a3']) call(name, { account: 1 });
  call('b1', { account: 2 });
  call('c1', { account: 3 });
  call('b2', { account: 2 });
  t.equal(queue.size, 6);
  room.set(0, 4);
  queue.sweep();
  t.same(served, ['a1', 'b1', 'c1', 'a2']);
  t.ok(queue.isAwaited(scope(0)));
  room.set(0, 10);
  queue.sweep();
  t.same(served.slice(4), ['b2', 'a3']);
  t.equal(queue.size, 0);
  t.notOk(queue.isAwaited(scope(0)));
  t.end();
});

void t.test('who needs more is not overtaken for what it waits for, and holds up nothing else', (t) => {
  const { queue, room, served, call } = world();
  call('large', { account: 1, needs: 5 });
  call('small', { account: 2 });
  call('elsewhere', { account: 3, scopes: [1] });
  call('either', { account: 4, scopes: [0, 1] });
  room.set(0, 4);
  room.set(1, 2);
  queue.sweep();
  t.same(served, ['elsewhere', 'either']);
  room.set(0, 6);
  queue.sweep();
  t.same(served.slice(2), ['large', 'small']);
  t.end();
});

void t.test('a call whose time is over is tried once more and leaves', (t) => {
  const { clock, queue, room, served, rejected, call } = world();
  call('first', { endMs: 1_100 });
  call('second', { endMs: 1_100 });
  call('third', { endMs: 1_200 });
  clock.ms = 1_100;
  room.set(0, 1);
  queue.sweep();
  t.same([served, rejected], [['first'], ['second']]);
  t.equal(queue.size, 1);
  clock.ms = 1_200;
  queue.sweep();
  t.same(rejected, ['second', 'third']);
  t.end();
});

void t.test('a call that leaves is not served', (t) => {
  const { queue, room, served, rejected, call } = world();
  const gone = call('gone');
  call('stays', { account: 2 });
  queue.remove(gone);
  queue.remove(gone);
  room.set(0, 2);
  queue.sweep();
  t.same([served, rejected, queue.size], [['stays'], [], 0]);
  t.end();
});

void t.test('number and bytes are bounded; the heaviest account gives way', (t) => {
  const { queue, rejected, call } = world();
  const most = UPSTREAM_QUEUE_BYTES_MAX / UPSTREAM_QUEUE_CALL_BYTES;
  for (let n = 0; n < most; n++) call(`a${n}`, { account: 1 });
  t.equal(queue.size, most);
  call('one too many', { account: 1 });
  t.same(rejected, ['one too many']);
  call('b', { account: 2 });
  t.same(rejected.slice(1), [`a${most - 1}`], 'the last of the account with most');
  call('larger than all', { account: 3, bytes: UPSTREAM_QUEUE_BYTES_MAX });
  t.equal(rejected.at(-1), 'larger than all');
  call('half', { account: 2, bytes: UPSTREAM_QUEUE_BYTES_MAX / 4 });
  t.equal(rejected.length, 3 + most / 4 + 1);
  t.equal(queue.size, most - most / 4);
  t.end();
});

void t.test('a call that finds the queue full keeps no later call from its scope', (t) => {
  const { queue, rejected, call } = world();
  const bytes = UPSTREAM_QUEUE_BYTES_MAX / 2 - UPSTREAM_QUEUE_CALL_BYTES;
  for (const name of ['a1', 'a2']) call(name, { account: 1, scopes: [0], bytes });
  call('a3', { account: 1, scopes: [1] });
  t.same(rejected, ['a3']);
  t.ok(queue.isAwaited(scope(0)));
  t.notOk(queue.isAwaited(scope(1)), 'nobody waits for it');
  t.end();
});

void t.test('nobody waits longer than a look for room that others gave', async (t) => {
  const { queue, room, served, call } = world();
  call('waits');
  room.set(0, 1);
  await new Promise((resolve) => setTimeout(resolve, 100));
  t.same(served, ['waits']);
  call('is told');
  room.set(0, 1);
  queue.onRoom();
  t.same(served, ['waits'], 'at the end of the turn');
  await new Promise((resolve) => setImmediate(resolve));
  t.same(served, ['waits', 'is told']);
});

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

void t.test('a look tries what it serves and one call a scope, however many wait', async (t) => {
  // The periodic look, which may fall into any of the turns below, is not counted.
  t.intercept(globalThis, 'setTimeout', { value: () => ({ unref: () => ({}) }), configurable: true });
  const { queue, room, served, work, call } = world();
  const counted = async (act: () => void): Promise<typeof work> => {
    Object.assign(work, { asked: 0, tried: 0 });
    act();
    await turn();
    return { ...work };
  };
  for (let n = 0; n < 900; n++) call(`a${n}`, { account: n % 3 });
  t.match(await counted(() => queue.sweep()), { asked: 900, tried: 1 });
  room.set(0, 2);
  t.same(await counted(() => queue.onRoom()), { asked: 3, tried: 3 }, 'of the rest none is visited');
  t.same(served, ['a0', 'a1']);
  t.ok(queue.isAwaited(scope(0)));
  for (let n = 0; n < 100; n++) call(`b${n}`, { account: 0, scopes: [1] });
  room.set(1, 100);
  const { asked, tried } = await counted(() => queue.onRoom());
  t.equal(served.length, 102, 'calls behind those that are blocked');
  t.ok(tried <= 102, `${tried} tried`);
  t.ok(asked <= 1_000, `${asked} asked`);
  t.notOk(queue.isAwaited(scope(1)));
});

void t.test('a scope that comes to serve a waiting call is found at the next look', async (t) => {
  const { queue, room, served, call } = world();
  call('before', { account: 1 });
  const scopes = [0];
  call('behind', { account: 2, scopes });
  scopes.push(1);
  room.set(1, 1);
  queue.onRoom();
  await turn();
  queue.sweep();
  t.same(served, ['behind']);
  t.ok(queue.isAwaited(scope(0)));
  t.notOk(queue.isAwaited(scope(1)));
});

void t.test('who is served in one look waits behind the other accounts in the next', (t) => {
  const { queue, room, served, call } = world();
  for (const name of ['a1', 'a2', 'a3']) call(name, { account: 1 });
  call('b1', { account: 2 });
  call('c1', { account: 3, scopes: [1] });
  room.set(0, 1);
  queue.sweep();
  room.set(0, 2);
  queue.sweep();
  t.same(served, ['a1', 'b1', 'a2']);
  t.end();
});
