/**
 * A server that refuses calls of tools without the thoughts before them, as DeepSeek and Kimi do, behind the
 * setting `thoughts_back`: a conversation with a tool goes on by Messages and by Responses, and another
 * upstream of the same model, which is tried first, gets no thoughts.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { startGateway } from '../support/gateway.js';

type Members = Readonly<Record<string, unknown>>;

const USAGE = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 };
const REFUSAL = 'The `reasoning_content` in the thinking mode must be passed back to the API.';
const CALL = { id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{}' } };
/** Longer than a body that the worker translates itself. */
const LARGE = 'word '.repeat(20_000);

/** Thinks and calls the tool; with its result thinks no more, and says what it had thought. */
function answerTo(messages: readonly Members[]): [status: number, body: object] {
  const turns = messages.filter(({ role }) => role === 'assistant');
  if (turns.some((turn) => turn.tool_calls !== undefined && !turn.reasoning_content))
    return [400, { error: { message: REFUSAL, type: 'invalid_request_error' } }];
  const message =
    turns.length === 0
      ? { role: 'assistant', content: null, reasoning_content: 'Look it up.', tool_calls: [CALL] }
      : { role: 'assistant', content: `I thought: ${String(turns[0]!.reasoning_content)}` };
  const choices = [{ index: 0, message, finish_reason: turns.length === 0 ? 'tool_calls' : 'stop' }];
  return [200, { id: 'c1', object: 'chat.completion', created: 1, choices, usage: USAGE }];
}

async function listen(t: Test, answer: (body: string) => [number, object]): Promise<string> {
  const server = createServer((request: IncomingMessage, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (piece: string) => (body += piece));
    request.on('end', () => {
      const [status, members] = answer(body);
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(members));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
}

void t.test('thoughts_back', async (t) => {
  const elsewhere: string[] = [];
  const busy = await listen(t, (body) => {
    elsewhere.push(body);
    return [503, { error: { message: 'busy' } }];
  });
  const thinking = await listen(t, (body) =>
    answerTo((JSON.parse(body) as { messages: readonly Members[] }).messages),
  );
  const price = { input: '1', output: '10' };
  const first = { url: busy, breaker_failures: 0 };
  const gateway = await startGateway(t, {
    config: {
      models: [
        { id: 'plain', price, upstreams: [first, { url: thinking, priority: 2 }] },
        { id: 'back', price, upstreams: [first, { url: thinking, priority: 2, thoughts_back: true }] },
      ],
      plans: [{ id: 'ample', requests_per_minute: 1_000, calls_per_day: 1_000 }],
    },
  });
  const { key } = await gateway.admin.customer();
  const call = async (path: string, body: object): Promise<[number, string]> => {
    const response = await fetch(`${gateway.url}/v1/${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return [response.status, await response.text()];
  };
  const schema = { type: 'object', properties: {} };

  /** Asks, and asks again with all that came and the tool's result. */
  async function byMessages(model: string, content: string): Promise<[number, string]> {
    const tools = [{ name: 'weather', input_schema: schema }];
    const user = { role: 'user', content };
    const [, text] = await call('messages', { model, max_tokens: 30, tools, messages: [user] });
    const { content: blocks } = JSON.parse(text) as { content: Members[] };
    const result = { type: 'tool_result', tool_use_id: blocks.at(-1)!.id, content: 'Sun.' };
    const turns = [
      { role: 'assistant', content: blocks },
      { role: 'user', content: [result] },
    ];
    return call('messages', { model, max_tokens: 30, tools, messages: [user, ...turns] });
  }

  async function byResponses(model: string, content: string, drops = false): Promise<[number, string]> {
    const tools = [{ type: 'function', name: 'weather', parameters: schema }];
    const user = { role: 'user', content };
    const [, text] = await call('responses', { model, store: false, tools, input: [user] });
    const { output: all } = JSON.parse(text) as { output: Members[] };
    const output = all.filter(
      ({ type, encrypted_content: signed }) => !drops || type !== 'reasoning' || typeof signed === 'string',
    );
    const result = { type: 'function_call_output', call_id: output.at(-1)!.call_id, output: 'Sun.' };
    return call('responses', { model, store: false, tools, input: [user, ...output, result] });
  }

  /** As the AI SDK does, which drops reasoning without `encrypted_content`. */
  const byAiSdk = (model: string, content: string) => byResponses(model, content, true);

  for (const converse of [byMessages, byResponses, byAiSdk]) {
    const [status, text] = await converse('plain', 'Hello');
    t.equal(status, 400, `${converse.name}, without the setting`);
    t.match(text, 'must be passed back');
    for (const content of ['Hello', LARGE]) {
      const [status, text] = await converse('back', content);
      t.equal(status, 200, `${converse.name}, ${content.length} characters`);
      t.match(text, 'I thought: Look it up.');
    }
  }
  t.equal(elsewhere.length, 18, 'the other upstream was asked first each time');
  t.notOk(elsewhere.some((body) => body.includes('reasoning_content')));
});
