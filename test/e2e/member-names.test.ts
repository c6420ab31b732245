/**
 * An upstream that refuses some of OpenAI's members, as Mistral does, behind the setting `member_names`: the
 * package `openai`, unmodified, streams, sets a seed and a bound, and the books have the upstream's usage.
 * Small bodies are renamed by the worker, large ones by a counter thread.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import OpenAI from 'openai';
import t from 'tap';
import { startGateway } from '../support/gateway.js';

/** Members of ChatCompletionStreamRequest of Mistral's Python client, as far as the test sends them. */
const KNOWN: ReadonlySet<string> = new Set([
  ...['model', 'messages', 'temperature', 'max_tokens', 'stream', 'stop', 'random_seed', 'n'],
]);
const USAGE = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 };
const LARGE = 'word '.repeat(20_000);
const asUser = (content: string) => [{ role: 'user' as const, content }];

type Members = Readonly<Record<string, unknown>>;

void t.test('member_names', async (t) => {
  const received: Members[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (piece: string) => (body += piece));
    request.on('end', () => {
      const members = JSON.parse(body) as Members;
      received.push(members);
      const unknown = Object.keys(members).filter((name) => !KNOWN.has(name));
      if (unknown.length > 0) {
        const detail = unknown.map((name) => ({ type: 'extra_forbidden', loc: ['body', name] }));
        response.writeHead(422, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ object: 'error', message: { detail }, type: 'invalid_request_error' }));
        return;
      }
      const head = { id: 'c1', created: 1, model: members.model };
      const message = { role: 'assistant', content: 'one two three' };
      const type = members.stream === true ? 'text/event-stream' : 'application/json';
      response.writeHead(200, { 'content-type': type });
      if (members.stream !== true) {
        const choices = [{ index: 0, message, finish_reason: 'stop' }];
        response.end(JSON.stringify({ ...head, object: 'chat.completion', choices, usage: USAGE }));
        return;
      }
      const event = (more: object): string =>
        `data: ${JSON.stringify({ ...head, object: 'chat.completion.chunk', ...more })}\n\n`;
      response.write(event({ choices: [{ index: 0, delta: message, finish_reason: null }] }));
      // The usage comes with the last choice, unasked.
      const last = { choices: [{ index: 0, delta: { content: '' }, finish_reason: 'stop' }], usage: USAGE };
      response.end(`${event(last)}data: [DONE]\n\n`);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  const names = {
    ...{ stream_options: '', user: '', store: '' },
    ...{ max_completion_tokens: 'max_tokens', seed: 'random_seed' },
  };
  const price = { input: '1', output: '10' };
  const gateway = await startGateway(t, {
    config: {
      models: [
        { id: 'named', price, upstreams: [{ url, member_names: names }] },
        { id: 'plain', price, upstreams: [{ url }] },
      ],
      plans: [{ id: 'ample', requests_per_minute: 1_000, calls_per_day: 1_000 }],
    },
  });
  const { accountId, key } = await gateway.admin.customer();
  const client = new OpenAI({ apiKey: key, baseURL: `${gateway.url}/v1`, maxRetries: 0 });
  const asked = (model: string, content: string) => ({
    model,
    messages: [{ role: 'user' as const, content }],
    ...{ max_completion_tokens: 30, seed: 5, user: 'caller', store: false },
  });

  const refused: unknown = await client.chat.completions
    .create(asked('plain', 'Hello'))
    .catch((e: unknown) => e);
  t.match(refused, { status: 400 }, 'without the setting');
  received.length = 0;
  let calls = 0;
  for (const content of ['Hello', LARGE]) {
    const whole = await client.chat.completions.create(asked('named', content));
    t.equal(whole.choices[0]?.message.content, 'one two three');
    for (const options of [{}, { stream_options: { include_usage: true } }]) {
      const stream = await client.chat.completions.create({
        ...asked('named', content),
        ...options,
        stream: true,
      });
      let text = '';
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
      t.equal(text, 'one two three');
    }
    calls += 3;
    // Messages are translated to a chat completion, whose members are renamed.
    const messages = await fetch(`${gateway.url}/v1/messages`, {
      method: 'POST',
      headers: { 'x-api-key': key, 'content-type': 'application/json' },
      body: JSON.stringify({
        ...{ model: 'named', stream: true, max_tokens: 30, metadata: { user_id: 'caller' } },
        messages: [{ role: 'user', content }],
      }),
    });
    t.equal(messages.status, 200);
    t.match(await messages.text(), /"output_tokens":3/);
    calls++;
  }
  t.equal(received.length, calls);
  for (const members of received) {
    t.notOk(Object.keys(members).find((name) => !KNOWN.has(name)));
    t.equal(members.max_tokens, 30, 'the bound goes out by its own name');
  }
  t.equal(received.filter(({ random_seed: seed }) => seed === 5).length, calls - 2);
  t.match(await gateway.admin.usageOf(accountId), {
    prompt_tokens: calls * USAGE.prompt_tokens,
    completion_tokens: calls * USAGE.completion_tokens,
  });
});

void t.test("OpenAI's models that refuse max_tokens", async (t) => {
  const received: Members[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (piece: string) => (body += piece));
    request.on('end', () => {
      const members = JSON.parse(body) as Members;
      received.push(members);
      const isRefused = 'max_tokens' in members;
      const message = { role: 'assistant', content: 'one' };
      const error = {
        message:
          "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        type: 'invalid_request_error',
        param: 'max_tokens',
        code: 'unsupported_parameter',
      };
      const answer = {
        ...{ id: 'c1', object: 'chat.completion', created: 1, model: members.model, usage: USAGE },
        choices: [{ index: 0, message, finish_reason: 'stop' }],
      };
      response.writeHead(isRefused ? 400 : 200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(isRefused ? { error } : answer));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  const price = { input: '1', output: '10' };
  const gateway = await startGateway(t, {
    config: {
      models: [{ id: 'deep', price, upstreams: [{ url, model: 'gpt-5' }] }],
      plans: [{ id: 'ample', requests_per_minute: 1_000, calls_per_day: 1_000, max_tokens: 500 }],
    },
  });
  const { key } = await gateway.admin.customer();
  const sent = async (path: string, body: object): Promise<Members> => {
    const response = await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'deep', ...body }),
    });
    t.equal(response.status, 200, await response.text());
    return received.at(-1)!;
  };
  for (const content of ['Hello', LARGE]) {
    const messages = asUser(content);
    const chat = '/v1/chat/completions';
    t.equal((await sent('/v1/messages', { messages, max_tokens: 30 })).max_completion_tokens, 30);
    t.equal((await sent('/v1/responses', { input: content })).max_completion_tokens, 500);
    t.equal((await sent(chat, { messages })).max_completion_tokens, 500, "the plan's bound");
    t.equal((await sent(chat, { messages, max_tokens: 40 })).max_completion_tokens, 40);
    t.equal((await sent(chat, { messages, max_completion_tokens: 50 })).max_completion_tokens, 50);
    const both = { messages, max_tokens: 60, max_completion_tokens: 20 };
    t.equal((await sent(chat, both)).max_completion_tokens, 20, "the caller's own stays");
  }
});
