/**
 * Streams whose client leaves after the first word, at providers that tell the tokens of the prompt before
 * the text: the prompt is charged as told, with what was read from the cache at its price, and the completion
 * by what was relayed. providers-leaving.test.ts has how long such calls last.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { eventually, startGateway } from '../support/gateway.js';
import { modelAt, PROVIDER_ENV, PROVIDER_MODELS, PROVIDER_PRICE } from '../support/provider-bed.js';
import { bedrockEvent } from '../support/provider-dialects.js';
import { SlowReader } from '../support/slow-reader.js';

const MESSAGES = '/v1/messages';
const CHAT = '/v1/chat/completions';
/** One token. */
const WORD = 'Hello';
const PICO_UNITS = 1_000_000;

/** What the upstream tells of the prompt, in all. */
let told = { prompt: 40_000, read: 39_000, written: 600, written1h: 200 };

const claudesEvents = (): object[] => [
  {
    type: 'message_start',
    message: {
      ...{ id: 'msg_1', type: 'message', role: 'assistant', model: 'claude', content: [] },
      usage: {
        input_tokens: told.prompt - told.read - told.written,
        cache_read_input_tokens: told.read,
        cache_creation_input_tokens: told.written,
        cache_creation: {
          ephemeral_5m_input_tokens: told.written - told.written1h,
          ephemeral_1h_input_tokens: told.written1h,
        },
        output_tokens: 8,
      },
    },
  },
  { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
  { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: WORD } },
];

const geminisEvent = (text: string): string =>
  `data: ${JSON.stringify({
    candidates: [{ content: { role: 'model', parts: [{ text }] }, index: 0 }],
    usageMetadata: {
      promptTokenCount: told.prompt,
      cachedContentTokenCount: told.read,
      totalTokenCount: told.prompt,
    },
    ...{ modelVersion: 'gemini-2.5-flash', responseId: 'r1' },
  })}\r\n\r\n`;

/** The first events of a stream, by the path of the request. The rest never comes. */
function begin(path: string, response: ServerResponse): void {
  const isFramed = path.includes('invoke-with-response-stream');
  const type = isFramed ? 'application/vnd.amazon.eventstream' : 'text/event-stream';
  response.writeHead(200, { 'content-type': type });
  if (path.includes('streamGenerateContent')) response.write(geminisEvent(WORD));
  else
    for (const event of claudesEvents())
      response.write(
        isFramed
          ? bedrockEvent('chunk', { bytes: Buffer.from(JSON.stringify(event)).toString('base64') })
          : `event: ${(event as { type: string }).type}\ndata: ${JSON.stringify(event)}\n\n`,
      );
}

void t.test('the prompt is charged as told', async (t) => {
  const upstream = createServer((request, response) => {
    request.resume();
    request.on('end', () => begin(request.url!, response));
  });
  upstream.listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  t.teardown(() => {
    upstream.closeAllConnections();
    upstream.close();
  });
  const origin = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
  const late = { ...PROVIDER_MODELS.find(({ id }) => id === 'at-anthropic')!, id: 'cut-late' };
  const gateway = await startGateway(t, {
    config: {
      models: [
        ...PROVIDER_MODELS.map((model) => modelAt(model, origin)),
        modelAt(late, origin, { total_timeout_ms: 1_000 }),
      ],
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000 }],
    },
    env: PROVIDER_ENV,
  });
  const { key, accountId } = await gateway.admin.customer({ credit: '1000.00' });
  const spent = async (): Promise<number> => {
    const account = await eventually('nothing held', async () => {
      const read = await gateway.admin.account(accountId);
      return Number(read.held) === 0 ? read : undefined;
    });
    return Math.round(Number(account.spent) * 1e12);
  };

  /** What a call costs that leaves after the first word, or stays until it is cut. */
  const costOf = async (model: string, path: string, content: string, leaves: boolean): Promise<number> => {
    const before = await spent();
    const image = { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } };
    const body = {
      ...{ model, stream: true, max_tokens: 100 },
      messages: [
        {
          role: 'user',
          content: path === MESSAGES ? [image, { type: 'text', text: content }] : content,
        },
      ],
    };
    const client = new SlowReader(gateway.port, key, body, 1_000_000, true, {}, path);
    await eventually('the first word', () => (Buffer.concat(client.parts).includes(WORD) ? true : undefined));
    if (leaves) client.leave();
    else await client.closed;
    const after = await eventually('a charge', async () => {
      const now = await spent();
      return now > before ? now : undefined;
    });
    return after - before;
  };

  /** A price of tokens in the smallest units. */
  const priceOf = (name: keyof typeof PROVIDER_PRICE, tokens: number): number =>
    Number(PROVIDER_PRICE[name]) * PICO_UNITS * tokens;
  const asTold = (isClaude: boolean): number =>
    priceOf('output', 1) +
    priceOf('cached_input', told.read) +
    (isClaude
      ? priceOf('input', told.prompt - told.read - told.written) +
        priceOf('cache_write', told.written - told.written1h) +
        priceOf('cache_write_1h', told.written1h)
      : priceOf('input', told.prompt - told.read));

  const LONG = 'word '.repeat(40_000);
  for (const [model, path, content] of [
    ['at-anthropic', CHAT, LONG],
    ['at-anthropic', CHAT, LONG.repeat(2)],
    ['at-anthropic', MESSAGES, LONG],
    ['claude-at-vertex', CHAT, LONG],
    ['claude-at-vertex', MESSAGES, LONG],
    ['at-bedrock', MESSAGES, LONG],
    ['at-gemini', CHAT, LONG],
    ['at-gemini', MESSAGES, 'look'],
    ['gemini-at-vertex', CHAT, LONG.repeat(2)],
  ] as const) {
    const expected = asTold(!model.includes('gemini'));
    const name = `${model} at ${path}, ${content.length} characters`;
    t.equal(await costOf(model, path, content, true), expected, name);
  }
  t.equal(await costOf('cut-late', CHAT, LONG, false), asTold(true), 'cut at a bound of the gateway');

  told = { prompt: 0, read: 0, written: 0, written1h: 0 };
  for (const path of [CHAT, MESSAGES]) {
    // Seven of the frame of a message, and the word.
    const counted = priceOf('input', 7 + 1) + priceOf('output', 1);
    t.equal(await costOf('at-anthropic', path, WORD, true), counted, `${path}: a prompt of 0 is counted`);
  }
  t.equal(await gateway.stop(), 0);
});
