/**
 * Each question gets its own response, one that is late or taken back gets none, and its number is not used
 * too early.
 */
import { MessageChannel } from 'node:worker_threads';
import t from 'tap';
import type { ErrorRecord } from '#src/core/errors.js';
import {
  AskPort,
  AskRejected,
  PendingReplies,
  type AskReply,
  type Question,
  type Withdrawal,
} from '#src/core/ask-port.js';
import { newSeed, randomOf } from '../../support/random.js';

const LATE: ErrorRecord = { code: 'overloaded', message: 'late' };
const GONE: ErrorRecord = { code: 'internal_error', message: 'gone' };
const FULL: ErrorRecord = { code: 'overloaded', message: 'full' };
const LONG_MS = 60_000;

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const messageOf = (reply: Promise<unknown>): Promise<string> =>
  reply.then(
    (answer) => `answer ${String(answer)}`,
    (error: unknown) => (error instanceof AskRejected ? error.rejection.message : String(error)),
  );

void t.test(
  'in any order of answers, refusals and withdrawals nobody gets what was for another',
  async (t) => {
    const seed = newSeed();
    t.comment(`seed ${seed}`);
    const next = randomOf(seed);
    const { port1, port2 } = new MessageChannel();
    const asks = new AskPort<number, string>(port1);
    t.teardown(() => port1.close());
    /** What the far end has been asked and has not answered. */
    const open = new Map<number, number>();
    let withdrawn = 0;
    let reused = false;
    const answer = (id: number): void => {
      const ask = open.get(id);
      if (ask === undefined) return;
      open.delete(id);
      const said: AskReply =
        ask % 3 === 0
          ? { id, ok: false, rejection: { ...FULL, message: `full ${ask}` } }
          : { id, ok: true, result: ask };
      port2.postMessage(said);
    };
    port2.on('message', (message: Question | Withdrawal) => {
      if ('withdrawn' in message) {
        withdrawn += 1;
        answer(message.id);
        return;
      }
      reused ||= open.has(message.id);
      open.set(message.id, message.ask as number);
      if (next() < 0.7) setTimeout(() => answer(message.id), next() * 5);
    });
    const wrong: string[] = [];
    const told = new Map<string, number>();
    const all: Promise<void>[] = [];
    for (let ask = 1; ask <= 2_000; ask++) {
      const asked = asks.askWithin(20, LATE, ask);
      const leaves = next() < 0.3;
      if (leaves) setTimeout(() => asked.withdraw(GONE), next() * 5);
      all.push(
        messageOf(asked.reply).then((got) => {
          const own = ask % 3 === 0 ? `full ${ask}` : `answer ${ask}`;
          if (got !== own && got !== 'late' && !(leaves && got === 'gone')) wrong.push(`${ask}: ${got}`);
          const kind = got.replace(/ .*/, '');
          told.set(kind, (told.get(kind) ?? 0) + 1);
        }),
      );
      if (ask % 50 === 0) await Promise.all(all);
    }
    await Promise.all(all);
    t.same(wrong, []);
    t.notOk(reused, 'no number is used before its question was answered');
    for (const kind of ['answer', 'full', 'late', 'gone'])
      t.ok(told.get(kind)! > 0, `${kind}: ${told.get(kind)}`);
    t.ok(withdrawn > 0);
  },
);

void t.test('a reply that came in time counts, however late this thread reads it', async (t) => {
  const { port1, port2 } = new MessageChannel();
  t.teardown(() => port1.close());
  const heard: unknown[] = [];
  port2.on('message', (message: Question | Withdrawal) => heard.push(message));
  const asks = new AskPort<string, number>(port1);
  // Timers come next in the event loop, before ports are read.
  await turn();
  const asked = asks.askWithin(5, LATE, 'in time');
  port2.postMessage({ id: 2 ** 20, ok: true, result: 1 } satisfies AskReply);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
  t.equal(await messageOf(asked.reply), 'answer 1');
  t.equal(await asks.askWithin(5, LATE, 'late').reply.catch(() => 'late'), 'late');
  await turn();
  t.match(heard, [{ id: 2 ** 20, ask: 'in time' }, { ask: 'late' }, { withdrawn: true }]);
  t.equal(heard.length, 3, 'the first question is not withdrawn');
});

void t.test('to take back what was answered, or twice, does nothing', async (t) => {
  const { port1, port2 } = new MessageChannel();
  t.teardown(() => port1.close());
  const heard: unknown[] = [];
  port2.on('message', (message: Question) => {
    heard.push(message);
    if (message.ask === 'first')
      port2.postMessage({ id: message.id, ok: true, result: 1 } satisfies AskReply);
  });
  const asks = new AskPort<string, number>(port1);
  const first = asks.askWithin(LONG_MS, LATE, 'first');
  t.equal(await first.reply, 1);
  first.withdraw(GONE);
  const second = asks.askWithin(LONG_MS, LATE, 'second');
  second.withdraw(GONE);
  t.equal(await messageOf(second.reply), 'gone');
  t.equal(await asks.ask('first'), 1, 'an answer still comes through');
  t.match(heard, [{ ask: 'first' }, { ask: 'second' }, { withdrawn: true }, { ask: 'first' }]);
});

void t.test(
  'what is asked and told in one turn is one message, in its order; replies may come together',
  async (t) => {
    const { port1, port2 } = new MessageChannel();
    t.teardown(() => port1.close());
    const heard: unknown[][] = [];
    port2.on('message', (messages: (Question<string> | { readonly low: number })[]) => {
      heard.push(messages.map((message) => ('ask' in message ? message.ask : message)));
      const replies: AskReply<string>[] = [];
      for (const message of messages)
        if ('ask' in message) replies.push({ id: message.id, ok: true, result: message.ask.toUpperCase() });
      port2.postMessage(replies);
    });
    const asks = new AskPort<string, string, { readonly low: number }>(port1, { isBatched: true });
    const one = asks.ask('one');
    asks.send({ low: 7 });
    const two = asks.ask('two');
    t.same(await Promise.all([one, two]), ['ONE', 'TWO']);
    t.equal(await asks.ask('three'), 'THREE');
    t.same(heard, [['one', { low: 7 }, 'two'], ['three']]);
  },
);

void t.test('each who waits gets the reply of its own id, in time or what is taken for it', async (t) => {
  // The timers of those who wait do not keep a thread alive.
  const alive = setInterval(() => undefined, 1_000);
  t.teardown(() => clearInterval(alive));
  const pending = new PendingReplies({ waitMsMax: 20, onTimeout: () => 'late' });
  const ids: number[] = [];
  const ask = (): Promise<string> => pending.ask((id) => ids.push(id));
  const [first, second, third] = [ask(), ask(), ask()];
  t.equal(pending.size, 3);
  pending.reply(ids[1]!, 'two');
  pending.reply(ids[1]!, 'twice');
  t.same([await first, await second, await third], ['late', 'two', 'late']);
  const fourth = ask();
  pending.reply(ids[0]!, 'of an earlier question');
  pending.reply(ids[1]!, 'of an earlier question');
  pending.reply(ids[2]!, 'of an earlier question');
  pending.reply(0, 'of none');
  t.equal(pending.size, 1);
  pending.reply(ids[3]!, 'four');
  t.equal(await fourth, 'four');
  t.equal(await pending.ask((id) => pending.reply(id, 'at once')), 'at once');
  t.equal(new Set(ids).size, 4, 'no id is used twice');
});

void t.test('when the far end is gone, all who wait get a reply', async (t) => {
  const pending = new PendingReplies({ waitMsMax: LONG_MS, onTimeout: () => false });
  const waiting = [1, 2, 3].map(() => pending.ask(() => undefined));
  pending.replyToAll(true);
  t.same(await Promise.all(waiting), [true, true, true]);
  t.equal(pending.size, 0);
});

void t.test('a question that cannot be sent rejects, and waits for nothing', async (t) => {
  const pending = new PendingReplies<string>({ waitMsMax: LONG_MS, onTimeout: () => 'late' });
  const ids: number[] = [];
  for (let count = 0; count < 3; count++)
    await t.rejects(
      pending.ask((id) => {
        ids.push(id);
        throw new Error('the other end is gone');
      }),
      { message: 'the other end is gone' },
    );
  t.equal(pending.size, 0);
  ids.forEach((id) => pending.reply(id, 'a reply that nobody awaits'));
  const asked = pending.ask((id) => setImmediate(() => pending.reply(id, 'a reply')));
  t.equal(await asked, 'a reply', 'the next question gets its own');
  t.equal(pending.size, 0);
  const { port1 } = new MessageChannel();
  t.teardown(() => port1.close());
  const asks = new AskPort<unknown, string>(port1);
  await t.rejects(
    asks.ask(() => 'no thread can get a function'),
    { name: 'DataCloneError' },
  );
});
