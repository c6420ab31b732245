/** What a probe sends, and how much of a response it reads. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { probeUpstreams, type ProbeView } from '#src/gateway/upstream-probe.js';
import { worldOf } from '../config/support.js';

type Body = Readonly<Record<string, unknown>>;

/** Probes one model with those settings. `replyOf` gives the status and the body of each call. */
async function probe(
  t: Test,
  model: Body,
  upstream: Body,
  replyOf: (body: Body) => readonly [status: number, text: string],
): Promise<{ readonly view: ProbeView; readonly calls: readonly Body[] }> {
  const calls: Body[] = [];
  const server = createServer((request, response) => {
    let text = '';
    request.on('data', (chunk: Buffer) => (text += chunk.toString()));
    request.on('end', () => {
      const body = JSON.parse(text) as Body;
      calls.push(body);
      const [status, reply] = replyOf(body);
      response.writeHead(status, { 'content-type': 'application/json' }).end(reply);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  const { settings } = worldOf(t, {
    'tollgate.yaml': JSON.stringify({
      models: [{ id: 'm', ...model, upstreams: [{ url, ...upstream }] }],
      plans: [{ id: 'p', requests_per_minute: 1, calls_per_day: 1 }],
    }),
  }).load();
  const [view] = (await probeUpstreams(settings, undefined))!;
  return { view: view!, calls };
}

void t.test('a long embedding, as OpenAI writes it, is a good response', async (t) => {
  const vector = Array.from({ length: 4_096 }, () => -0.012345678901234567);
  const list = {
    object: 'list',
    data: [{ object: 'embedding', index: 0, embedding: vector }],
    model: 'e',
    usage: { prompt_tokens: 1 },
  };
  const { view } = await probe(t, { serves: ['embeddings'] }, {}, () => [
    200,
    JSON.stringify(list, undefined, 2),
  ]);
  t.match(view, { ok: true, status: 200, answered_model: 'e', usage_reported: true, advice: null });
});

void t.test('an endless response is not read to its end', async (t) => {
  const { view } = await probe(t, {}, {}, () => [200, JSON.stringify({ choices: ['x'.repeat(600_000)] })]);
  t.match(view, { ok: false, result: 'status 200, too long an answer' });
});

void t.test('each bound of the output is tried once', async (t) => {
  const refusal = (name: string) => [400, JSON.stringify({ error: { message: `not ${name}` } })] as const;
  const good = [200, JSON.stringify({ choices: [{}], model: 'm', usage: { prompt_tokens: 1 } })] as const;
  const other = await probe(t, {}, {}, (body) =>
    'max_tokens' in body ? refusal('max_tokens, use max_completion_tokens') : good,
  );
  t.match(other.view, { ok: true, advice: /set member_names/ });
  t.equal(other.calls.length, 2);
  // Some models reject less than 16.
  for (const { max_tokens: tokens, max_completion_tokens: newTokens } of other.calls)
    t.equal(tokens ?? newTokens, 16);

  const names = { member_names: { max_tokens: 'max_completion_tokens' } };
  const named = await probe(t, {}, names, () => refusal('max_completion_tokens'));
  t.match(named.view, { ok: false, status: 400 });
  t.equal(named.calls.length, 1, 'the same request is not sent again');
});
