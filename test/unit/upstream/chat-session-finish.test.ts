/** Calls whose client leaves, on an upstream that is set to finish for nobody. */
import type { ServerResponse } from 'node:http';
import t, { type Test } from 'tap';
import { LEFT_CALLS_MAX, LEFT_CALLS_OF_ACCOUNT_MAX } from '#src/core/limits.js';
import { asAccountIndex } from '#src/core/units.js';
import type { UpstreamTarget } from '#src/upstream/target.js';
import { answerOf, chunkOf, FakeDownstream, sse, type Script } from '../../fixtures/upstream-server.js';
import { answering, COUNTED, turn, world, type World } from '../../fixtures/upstream-world.js';

/** 5,000 tokens of it nobody has seen. */
const USAGE = {
  prompt_tokens: 7,
  completion_tokens: 5_003,
  completion_tokens_details: { reasoning_tokens: 5_000 },
};
const TOLD = {
  promptTokens: 7,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  reasoningTokens: 5_000,
  completionTokens: 5_003,
  source: 'reported',
};
const TEXT = sse(chunkOf('text'));
const END =
  sse(chunkOf('', 'stop')) + sse({ ...chunkOf(''), choices: [], usage: USAGE }) + 'data: [DONE]\n\n';

interface Bed extends World {
  /** What the upstream has been asked for, in order; each has had its first event. */
  readonly responses: ServerResponse[];
}

/** Streams that begin, and go on as each test says. */
async function bed(t: Test, changes: Partial<UpstreamTarget> = {}, more: Script[] = []): Promise<Bed> {
  const responses: ServerResponse[] = [];
  const begin: Script = (_request, response) => {
    responses.push(response);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(TEXT);
  };
  const finishing = { whenClientLeaves: 'finish', ...changes } as const;
  return { ...(await world(t, [begin, ...more], undefined, finishing)), responses };
}

async function until(what: string, isSo: () => boolean): Promise<void> {
  const lateMs = performance.now() + 10_000;
  while (!isSo()) {
    if (performance.now() > lateMs) throw new Error(`timed out waiting until ${what}`);
    await turn();
  }
}

/** A call whose client has the first event. */
async function begun({ call }: Bed, account = 3, downstream = new FakeDownstream()) {
  const one = call({ stream: true, account: asAccountIndex(account) }, downstream);
  await until('the text is relayed', () => one.downstream.text !== '');
  return one;
}

void t.test('what is told after the last text is charged, and nothing more is relayed', async (t) => {
  const one = await bed(t);
  const { session, downstream } = await begun(one);
  session.onCancel();
  session.onCancel();
  session.onCredit();
  for (let count = 0; count < 20; count += 1) await turn();
  t.equal(downstream.endings, 0, 'the upstream has not ended yet');
  one.responses[0]!.end(END);
  await downstream.ended;
  t.strictSame(downstream.usage, TOLD);
  t.equal(downstream.text, TEXT);
  t.equal(one.counts.length, 0);
  t.notOk(downstream.wasCut);
  t.match(downstream.attempts, [{ status: 200, code: undefined, error: '' }], 'the attempt was good');
  session.onStop();
  const next = await begun(one);
  t.equal(one.upstreams[0]!.connections, 1, 'the connection is used again');
  next.session.onStop();
  await next.downstream.ended;
  t.strictSame(next.downstream.usage, { ...COUNTED, source: 'estimated' }, 'where it must not finish');
});

void t.test('without a report all that was generated is counted', async (t) => {
  const one = await bed(t);
  const { session, downstream } = await begun(one);
  session.onCancel();
  one.responses[0]!.end(TEXT + sse(chunkOf('', 'stop')) + 'data: [DONE]\n\n');
  await downstream.ended;
  t.strictSame(downstream.usage, { ...COUNTED, source: 'estimated' });
  t.equal(one.counts[0]?.completion.split('text').length, 3, 'with the text that came for nobody');
});

void t.test('a client that did not read: the upstream need not wait for it any more', async (t) => {
  const one = await bed(t);
  const blocked = new FakeDownstream();
  blocked.open = false;
  const { session, downstream } = await begun(one, 3, blocked);
  const many = 64 * 1024;
  one.responses[0]!.write(TEXT.repeat(many));
  one.responses[0]!.end(END);
  session.onCancel();
  await downstream.ended;
  t.strictSame(downstream.usage, TOLD);
  t.ok(downstream.pieces.length < many);
});

void t.test('a whole response is awaited, and charged as told', async (t) => {
  let respond: () => void = () => undefined;
  const whole = await world(
    t,
    [(...args) => (respond = () => answering(answerOf(USAGE))(...args))],
    undefined,
    { whenClientLeaves: 'finish' },
  );
  const { session, downstream } = whole.call();
  await until('it is asked', () => whole.upstreams[0]!.requests.length === 1);
  session.onCancel();
  respond();
  await downstream.ended;
  t.strictSame(downstream.usage, TOLD);
  t.equal(downstream.text, '');
});

void t.test('before its request is sent a call ends as ever', async (t) => {
  const { call } = await bed(t);
  const { session, downstream } = call();
  session.onCancel();
  await downstream.ended;
  t.ok(downstream.error);
});

void t.test('an upstream that fails: nobody else is asked', async (t) => {
  for (const status of [500, 400]) {
    let respond: () => void = () => undefined;
    const failing: Script = (...args) =>
      (respond = () => answering('{"error":{}}', undefined, status)(...args));
    const { call, upstreams } = await world(t, [failing, answering(answerOf(USAGE))], undefined, {
      whenClientLeaves: 'finish',
    });
    const { session, downstream } = call();
    await until('it is asked', () => upstreams[0]!.requests.length === 1);
    session.onCancel();
    respond();
    await downstream.ended;
    t.ok(downstream.error, `${status}: nothing was generated, and nothing is charged`);
    await turn();
    t.equal(downstream.endings, 1);
    t.equal(upstreams[1]!.requests.length, 0);
  }
  const one = await bed(t, {}, [answering(answerOf(USAGE))]);
  const { session, downstream } = await begun(one);
  session.onCancel();
  one.responses[0]!.write(TEXT);
  setTimeout(() => one.responses[0]!.destroy(), 20);
  await downstream.ended;
  t.ok(downstream.wasCut, 'what came is charged, as if it had been aborted');
  t.strictSame(downstream.usage, { ...COUNTED, source: 'estimated' });
  t.equal(one.upstreams[1]!.requests.length, 0);
});

void t.test('an upstream that never ends is cut by the time of the call', async (t) => {
  const one = await bed(t, { totalTimeoutMs: 300 });
  const { session, downstream } = await begun(one);
  session.onCancel();
  const drips = setInterval(() => one.responses[0]!.write(TEXT), 20);
  await downstream.ended;
  clearInterval(drips);
  t.ok(downstream.wasCut);
  t.strictSame(downstream.usage, { ...COUNTED, source: 'estimated' });
});

void t.test('the end of the gateway aborts it at once', async (t) => {
  const one = await bed(t);
  const { session, downstream } = await begun(one);
  session.onCancel();
  const closed = new Promise((resolve) => one.responses[0]!.once('close', resolve));
  session.onStop();
  session.onStop();
  await closed;
  await downstream.ended;
  t.strictSame(downstream.usage, { ...COUNTED, source: 'estimated' });
  await turn();
  t.equal(downstream.endings, 1);
});

void t.test('one account has a share of such calls, all have a bound, and places come back', async (t) => {
  const one = await bed(t);
  const leave = async (account: number) => {
    const { session, downstream } = await begun(one, account);
    session.onCancel();
    return { downstream, response: one.responses.at(-1)! };
  };
  const left = [];
  for (let account = 1; account <= LEFT_CALLS_MAX / LEFT_CALLS_OF_ACCOUNT_MAX; account += 1) {
    for (let count = 0; count < LEFT_CALLS_OF_ACCOUNT_MAX; count += 1) left.push(await leave(account));
    if (account > 1) continue;
    const beyond = await leave(account);
    await beyond.downstream.ended;
    t.strictSame(
      beyond.downstream.usage,
      { ...COUNTED, source: 'estimated' },
      'aborted, as its share is full',
    );
  }
  const beyond = await leave(99);
  await beyond.downstream.ended;
  t.strictSame(
    beyond.downstream.usage,
    { ...COUNTED, source: 'estimated' },
    'aborted, as all places are taken',
  );
  t.equal(left.filter(({ downstream }) => downstream.endings > 0).length, 0);

  for (const { response } of left) response.end(END);
  await Promise.all(left.map(({ downstream }) => downstream.ended));
  t.equal(
    left.filter(({ downstream }) => downstream.usage?.reasoningTokens === 5_000).length,
    LEFT_CALLS_MAX,
  );
  const again = await leave(1);
  again.response.end(END);
  await again.downstream.ended;
  t.strictSame(again.downstream.usage, TOLD, 'there is room again');
});
