/**
 * Failures that a caller can bring about, by each door that reads events or whole responses of an upstream:
 * they give no text for nothing, and close no upstream to others. And ends that come after the last text.
 */
import { createServer, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import { SSE_EVENT_BYTES_MAX, UPSTREAM_RESPONSE_BYTES_MAX } from '#src/core/limits.js';
import { settledAccount } from '../support/fault-cells.js';
import { startGateway, type Gateway } from '../support/gateway.js';
import type { Answer } from '../support/http.js';

const PRICE = { input: '1.5', output: '2.25' };
/** Pico-units of 7 tokens of the prompt and 30 of the text. */
const REPORTED = 7n * 1_500_000n + 30n * 2_250_000n;
const WORDS = Array.from({ length: 30 }, (_, index) => `word${index}`);
const USAGE = { prompt_tokens: 7, completion_tokens: 30, total_tokens: 37 };
const ITEMS_USAGE = { input_tokens: 7, output_tokens: 30, total_tokens: 37 };

type Script = (response: ServerResponse, request: string) => void;

const eventOf = (data: object): string => `data: ${JSON.stringify(data)}\n\n`;
const begin = (response: ServerResponse, texts: readonly object[]): void => {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(texts.map(eventOf).join(''));
};
/** What follows is sent once the gateway has read and relayed the text. */
const later = (act: () => void): void => void setTimeout(act, 100);

const CHAT_TEXTS = WORDS.map((content) => ({ choices: [{ index: 0, delta: { content } }] }));
const RESPONSES_TEXTS = WORDS.map((delta) => ({ type: 'response.output_text.delta', item_id: 'a', delta }));
const MESSAGES_TEXTS = [
  { type: 'message_start', message: { content: [], usage: { input_tokens: 7, output_tokens: 1 } } },
  ...WORDS.map((text) => ({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })),
  { type: 'content_block_stop', index: 0 },
];
const MESSAGES_DELTA = {
  type: 'message_delta',
  delta: { stop_reason: 'end_turn' },
  usage: { output_tokens: 30 },
};
const completed = (more: object): string =>
  eventOf({ type: 'response.completed', response: { status: 'completed', usage: ITEMS_USAGE, ...more } });

const LONG_EVENT = 'x'.repeat(2 * SSE_EVENT_BYTES_MAX);
const TOO_LONG = 'x'.repeat(UPSTREAM_RESPONSE_BYTES_MAX + SSE_EVENT_BYTES_MAX);

/** Streams, by what each costs: the report, or what is counted. */
const STREAMS: Readonly<Record<string, { door: string; costs: 'reported' | 'counted'; script: Script }>> = {
  'responses: the last event repeats 2 MiB': {
    door: 'responses',
    costs: 'reported',
    script: (response) => {
      begin(response, RESPONSES_TEXTS);
      later(() => response.end(completed({ instructions: LONG_EVENT })));
    },
  },
  'responses: the last event is longer than a response may be': {
    door: 'responses',
    costs: 'counted',
    script: (response) => {
      begin(response, RESPONSES_TEXTS);
      later(() => response.end(completed({ instructions: TOO_LONG })));
    },
  },
  'chat: an event of 2 MiB': {
    door: 'chat',
    costs: 'counted',
    script: (response) => {
      begin(response, CHAT_TEXTS);
      later(() => response.end(eventOf({ choices: [{ index: 0, delta: {}, logprobs: LONG_EVENT }] })));
    },
  },
  ...Object.fromEntries(
    Object.entries({
      'a reset': (response: ServerResponse) => response.socket?.resetAndDestroy(),
      'an error': (response: ServerResponse) =>
        response.end(eventOf({ type: 'error', error: { type: 'overloaded_error' } })),
      'no end': (response: ServerResponse) => response.end(),
      garbage: (response: ServerResponse) => response.end('data: {"x\n\n'),
    }).flatMap(([name, end]) =>
      [true, false].map((waits) => [
        `messages: ${name} after the reason of the end${waits ? '' : ', at once'}`,
        {
          door: 'messages',
          costs: 'reported' as const,
          script: (response: ServerResponse) => {
            if (waits) {
              begin(response, [...MESSAGES_TEXTS, MESSAGES_DELTA]);
              later(() => end(response));
            } else if (name === 'a reset') {
              begin(response, [...MESSAGES_TEXTS, MESSAGES_DELTA, { type: 'message_stop' }]);
              response.end();
            } else {
              begin(response, [...MESSAGES_TEXTS, MESSAGES_DELTA]);
              end(response);
            }
          },
        },
      ]),
    ),
  ),
  'messages: text after the reason of the end, then an end': {
    door: 'messages',
    costs: 'counted',
    script: (response) => {
      begin(response, [MESSAGES_TEXTS[0]!, MESSAGES_DELTA, ...MESSAGES_TEXTS.slice(1)]);
      response.end(eventOf({ type: 'message_stop' }));
    },
  },
  'responses: no deltas and no usage': {
    door: 'responses',
    costs: 'counted',
    script: (response) => {
      const item = { id: 'a', type: 'message', content: [{ type: 'output_text', text: WORDS.join(' ') }] };
      begin(response, [{ type: 'response.output_item.done', item }]);
      response.end(completed({ output: [item], usage: null }));
    },
  },
};

/** Requests with `big` make the upstream fail, in a way that says nothing about others. */
const FAILURES: Readonly<Record<string, { door: string; stream?: true; script: Script }>> = {
  'a whole response that is too long': {
    door: 'embeddings',
    script: (response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ data: [{ embedding: TOO_LONG }], usage: USAGE }));
    },
  },
  'a first event that is too long': {
    door: 'responses',
    stream: true,
    script: (response) =>
      begin(response, [{ type: 'response.created', response: { instructions: TOO_LONG } }]),
  },
  'status 500': { door: 'chat', script: (response) => response.writeHead(500).end('{}') },
  garbage: {
    door: 'chat',
    script: (response) => response.writeHead(200, { 'content-type': 'application/json' }).end('{"x'),
  },
  'no answer': { door: 'chat', script: (response) => response.destroy() },
};

const PATHS: Readonly<Record<string, string>> = {
  chat: '/v1/chat/completions',
  messages: '/v1/messages',
  responses: '/v1/responses',
  embeddings: '/v1/embeddings',
};

const good: Readonly<Record<string, Script>> = {
  chat: (response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ choices: [{ index: 0, message: { content: 'hi' } }], usage: USAGE }));
  },
  embeddings: (response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ data: [{ embedding: 'AAAA' }], usage: USAGE }));
  },
  responses: (response) => {
    begin(response, RESPONSES_TEXTS);
    response.end(completed({}));
  },
};

const slugOf = (name: string): string => name.replace(/[^a-z0-9]+/g, '-');

async function startUpstream(t: Test): Promise<string> {
  const scripts = new Map<string, Script>();
  for (const [name, { script }] of Object.entries(STREAMS)) scripts.set(slugOf(name), script);
  for (const [name, { door, script }] of Object.entries(FAILURES))
    scripts.set(slugOf(name), (response, request) =>
      (request.includes('"big"') ? script : good[door]!)(response, request),
    );
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () =>
      scripts.get(request.url!.split('/')[1]!)!(response, Buffer.concat(chunks).toString()),
    );
    // The gateway closes what is too long.
    response.on('error', () => undefined);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function call(
  gateway: Gateway,
  key: string,
  door: string,
  model: string,
  text: string,
  stream: boolean,
): Promise<Answer> {
  const said =
    door === 'chat' || door === 'messages'
      ? { messages: [{ role: 'user', content: text }] }
      : { input: text };
  const body = { model, ...said, ...(door === 'messages' && { max_tokens: 100 }), ...(stream && { stream }) };
  return gateway.request(key, { path: PATHS[door]!, body });
}

void t.test('failures that a caller brings about', { timeout: 120_000 }, async (t) => {
  const origin = await startUpstream(t);
  const modelOf = ([name, { door }]: [string, { door: string }]): object => ({
    id: slugOf(name),
    serves: [door === 'embeddings' ? door : 'chat'],
    price: PRICE,
    max_output_tokens: 1_000,
    upstreams: [
      {
        url: `${origin}/${slugOf(name)}${door === 'messages' ? '' : '/v1'}`,
        ...(door === 'messages' && { provider: 'anthropic', key: '${PROVIDER_KEY}' }),
        ...(door === 'responses' && { speaks: ['responses'] }),
      },
    ],
  });
  const gateway = await startGateway(t, {
    config: {
      models: [...Object.entries(STREAMS), ...Object.entries(FAILURES)].map(modelOf),
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000 }],
    },
    env: { PROVIDER_KEY: 'sk-provider-secret-0123456789' },
  });
  await t.test('what was delivered is charged', async (t) => {
    await Promise.all(
      Object.entries(STREAMS).map(async ([name, { door, costs }]) => {
        const { key, accountId } = await gateway.admin.customer();
        const text = await call(gateway, key, door, slugOf(name), 'Hello', true).then(
          ({ body }) => body,
          // The connection was cut, so the test's client has no answer to give.
          () => undefined,
        );
        if (text !== undefined)
          t.ok(
            WORDS.every((word) => text.includes(word)),
            `${name}: delivered`,
          );
        else t.equal(costs, 'counted', `${name}: only what is cut is counted`);
        const account = await settledAccount(gateway, accountId, name);
        const spent = picoUnitsOf(account.spent)!;
        if (costs === 'reported') t.equal(spent, REPORTED, `${name}: ${account.spent}`);
        else t.ok(spent >= 30n * 2_250_000n && spent < 4n * REPORTED, `${name}: ${account.spent}`);
        if (door === 'messages') t.match(text?.trimEnd().split('\n').at(-1), 'message_stop', name);
      }),
    );
  });
  await t.test('others are served all the while', async (t) => {
    for (const [name, { door, stream = false }] of Object.entries(FAILURES)) {
      const hostile = await gateway.admin.customer();
      const other = await gateway.admin.customer();
      for (const calls of [6, 1]) {
        for (let count = 0; count < calls; count++) {
          const { status } = await call(gateway, hostile.key, door, slugOf(name), 'big', stream);
          t.equal(status, 502, name);
        }
        const answer = await call(gateway, other.key, door, slugOf(name), 'small', stream);
        t.equal(answer.status, 200, `${name}: ${answer.body.slice(0, 200)}`);
      }
    }
  });
});
