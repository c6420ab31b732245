/** The outbox against a real receiver that fails, hangs and asks for pauses; the clock stands still. */
import OpenAI from 'openai';
import t, { type Test } from 'tap';
import type { Settings } from '#src/config/schema.js';
import { WebhookOutbox } from '#src/gateway/webhook-outbox.js';
import { Store } from '#src/store/store.js';
import { ListLog, StoppedClock } from '../store/support.js';
import { startReceiver, WEBHOOK_SECRET } from '../../support/webhook-receiver.js';

const DAY_MS = 86_400_000;

async function open(t: Test) {
  const receiver = await startReceiver(t);
  const store = new Store(t.testdir({}));
  t.teardown(() => store.close());
  const clock = new StoppedClock();
  const log = new ListLog();
  const outboxOf = (): WebhookOutbox =>
    new WebhookOutbox({
      settings: () => world.notify,
      rows: store.notices,
      // A pause is as long as it can be.
      random: () => 1,
      clock,
      log,
    });
  const world = {
    receiver,
    store,
    clock,
    log,
    outboxOf,
    outbox: outboxOf(),
    notify: { url: receiver.url, secret: WEBHOOK_SECRET, at: [80], timeout_ms: 2_000 } as Settings['notify'],
    told: 0,
    tell: (id: string): void => {
      world.told += 1;
      const mark = { scopeId: id, quota: 'calls_per_day', period: 'p', percent: 80, endsMs: null };
      store.notices.tell([mark], () => ({
        id,
        body: `{"id":"${id}"}`,
        reportedMs: clock.nowMs + world.told,
      }));
    },
    ids: (): unknown[] => receiver.received.map(({ headers }) => headers['webhook-id']),
    waiting: (): string[] => store.notices.waiting().map(({ id }) => id),
  };
  world.outbox.open();
  return world;
}

void t.test('what waits is sent once, signed, and gone', async (t) => {
  const world = await open(t);
  world.clock.nowMs = Date.now();
  world.tell('msg_a');
  world.tell('msg_b');
  await world.outbox.sendWaiting();
  await world.outbox.sendWaiting();
  t.same(world.ids(), ['msg_a', 'msg_b']);
  t.same(world.waiting(), []);
  t.match(world.outbox.counts, { sent: 2, failedAttempts: 0, givenUp: 0 });
  for (const { headers, body } of world.receiver.received)
    await new OpenAI({ apiKey: '-' }).webhooks.verifySignature(body, headers, WEBHOOK_SECRET);
  t.same(world.log.lines, []);
});

void t.test('failures double the pause, a success ends it', async (t) => {
  const world = await open(t);
  world.tell('msg_a');
  const fails = 12;
  for (let n = 0; n < fails; n++) world.receiver.replies.push({ status: 500 });
  for (let n = 0; n < fails; n++) {
    await world.outbox.sendWaiting();
    t.equal(world.receiver.received.length, n + 1);
    const pauseMs = Math.min(1_000 * 2 ** n, 300_000);
    world.clock.nowMs += pauseMs - 1;
    await world.outbox.sendWaiting();
    t.equal(world.receiver.received.length, n + 1, `none within ${pauseMs} ms`);
    world.clock.nowMs += 1;
  }
  await world.outbox.sendWaiting();
  t.same(new Set(world.ids()), new Set(['msg_a']), 'one id in all attempts');
  const times = world.receiver.received.map(({ headers }) => headers['webhook-timestamp']);
  t.equal(new Set(times).size, fails + 1, 'and the time of each');
  t.match(world.outbox.counts, { sent: 1, failedAttempts: fails });
  t.same(world.log.lines, [
    'warn a webhook was not taken; it is tried again',
    'warn webhooks are taken again',
  ]);
  world.tell('msg_b');
  await world.outbox.sendWaiting();
  t.equal(world.outbox.counts.sent, 2, 'no pause is left');
});

void t.test('Retry-After is kept to', async (t) => {
  const world = await open(t);
  world.tell('msg_a');
  world.receiver.replies.push({ status: 429, headers: { 'retry-after': '120' } });
  await world.outbox.sendWaiting();
  world.clock.nowMs += 119_999;
  await world.outbox.sendWaiting();
  t.equal(world.receiver.received.length, 1);
  world.clock.nowMs += 1;
  await world.outbox.sendWaiting();
  t.same(world.waiting(), []);
});

void t.test(
  'a reload that changes the receiver or the secret ends the pause, any other does not',
  async (t) => {
    const world = await open(t);
    world.tell('msg_a');
    const { notify } = world;
    world.receiver.replies.push({ status: 429, headers: { 'retry-after': '120' } }, { status: 500 });
    await world.outbox.sendWaiting();
    world.notify = { ...notify!, timeout_ms: 3_000 };
    await world.outbox.sendWaiting();
    t.equal(world.receiver.received.length, 1, 'the receiver is the same');
    world.notify = { ...notify!, url: `${world.receiver.url}?other` };
    await world.outbox.sendWaiting();
    await world.outbox.sendWaiting();
    t.equal(world.receiver.received.length, 2, 'another receiver, which fails too');
    world.notify = { ...world.notify, secret: `whsec_${Buffer.alloc(32, 7).toString('base64')}` };
    await world.outbox.sendWaiting();
    t.equal(world.receiver.received.length, 3, 'another secret');
    t.same(world.waiting(), []);
  },
);

void t.test('a receiver that hangs or redirects', async (t) => {
  const world = await open(t);
  world.tell('msg_a');
  world.receiver.replies.push(
    { status: undefined },
    { status: 302, headers: { location: `${world.receiver.url}/x` } },
  );
  await world.outbox.sendWaiting();
  world.clock.nowMs += 1_000;
  await world.outbox.sendWaiting();
  t.same(
    world.receiver.received.map(({ path }) => path),
    ['/hook', '/hook'],
  );
  t.same(world.waiting(), ['msg_a'], 'it waits for an operator to mend the address');
  t.equal(world.outbox.counts.failedAttempts, 2);
});

void t.test('one that is refused keeps none of the others back', async (t) => {
  const world = await open(t);
  for (const id of ['msg_bad', 'msg_b', 'msg_c']) world.tell(id);
  world.receiver.replies.push({ status: 400 });
  await world.outbox.sendWaiting();
  world.receiver.replies.push({ status: 204 }, { status: 204 }, { status: 400 });
  world.clock.nowMs += 1_000;
  await world.outbox.sendWaiting();
  t.same(world.ids(), ['msg_bad', 'msg_b', 'msg_c', 'msg_bad']);
  t.same(world.waiting(), ['msg_bad']);
});

void t.test('a day later it is given up, and 410 at once', async (t) => {
  const world = await open(t);
  world.tell('msg_a');
  world.receiver.replies.push({ status: 410 });
  await world.outbox.sendWaiting();
  t.same(world.waiting(), []);
  world.tell('msg_b');
  world.clock.nowMs += DAY_MS + 1_000;
  await world.outbox.sendWaiting();
  t.same(world.ids(), ['msg_a']);
  t.same(world.waiting(), []);
  t.equal(world.outbox.counts.givenUp, 2);
  t.equal(world.log.lines.filter((line) => line === 'error a webhook was given up').length, 2);
});

void t.test(
  'a clock that is two days ahead for a minute gives nothing up, and no notice is told twice',
  async (t) => {
    const world = await open(t);
    world.notify = { at: [80], timeout_ms: 200 };
    const mark = { scopeId: 'acct_a', quota: 'calls_per_day', period: 'p', percent: 80 };
    const endsMs = world.clock.nowMs + 1_000;
    world.store.notices.tell([{ ...mark, endsMs }], () => ({
      id: 'msg_a',
      body: '{}',
      reportedMs: world.clock.nowMs,
    }));
    const pass = async (seconds: number): Promise<void> => {
      for (let at = 0; at < seconds; at += 10) {
        world.clock.nowMs += 10_000;
        await world.outbox.sendWaiting();
      }
    };
    await pass(7_200);
    const ahead = (ms: number): void => {
      world.clock.nowMs += ms;
      world.clock.setMs += ms;
    };
    ahead(2 * DAY_MS);
    world.notify = { url: world.receiver.url, secret: WEBHOOK_SECRET, at: [80], timeout_ms: 200 };
    world.receiver.replies.push(...Array.from({ length: 6 }, () => ({ status: 500 })));
    await pass(60);
    t.equal(world.outbox.counts.givenUp, 0);
    t.notOk(world.store.notices.isNew({ ...mark, endsMs }), 'it is known that it was told');
    ahead(-2 * DAY_MS);
    await pass(600);
    t.same(new Set(world.ids()), new Set(['msg_a']));
    t.match(world.outbox.counts, { sent: 1, givenUp: 0 });
    world.notify = { at: [80], timeout_ms: 200 };
    world.tell('msg_b');
    world.notify = { url: world.receiver.url, secret: WEBHOOK_SECRET, at: [80], timeout_ms: 200 };
    world.receiver.replies.push(...Array.from({ length: 400 }, () => ({ status: 500 })));
    ahead(2 * DAY_MS);
    await pass(4_000);
    t.equal(world.outbox.counts.givenUp, 1, 'one that stays there is believed');
  },
);

void t.test('what a process leaves behind the next one sends', async (t) => {
  const world = await open(t);
  world.tell('msg_a');
  world.receiver.replies.push({ status: undefined });
  world.notify = { ...world.notify!, timeout_ms: 60_000 };
  const cut = world.outbox.sendWaiting();
  while (world.receiver.received.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  world.outbox.close();
  await cut;
  await world.outbox.sendWaiting();
  t.equal(world.receiver.received.length, 1, 'a closed outbox sends nothing');
  const next = world.outboxOf();
  await next.sendWaiting();
  t.equal(world.receiver.received.length, 1, 'nor does one that does not lead');
  next.open();
  await next.sendWaiting();
  t.same(world.ids(), ['msg_a', 'msg_a']);
  t.same(world.waiting(), []);
});

void t.test('one that was closed sends again when it is opened', async (t) => {
  const world = await open(t);
  world.outbox.close();
  world.tell('msg_a');
  await world.outbox.sendWaiting();
  t.same(world.waiting(), ['msg_a']);
  world.outbox.open();
  await world.outbox.sendWaiting();
  t.same(world.ids(), ['msg_a']);
  t.same(world.waiting(), []);
  t.same(world.log.lines, []);
});

void t.test('without a receiver they wait', async (t) => {
  const world = await open(t);
  world.tell('msg_a');
  const { notify } = world;
  world.notify = { at: [80], timeout_ms: 200 };
  await world.outbox.sendWaiting();
  t.same(world.waiting(), ['msg_a']);
  world.notify = notify;
  await world.outbox.sendWaiting();
  t.same(world.waiting(), []);
});
