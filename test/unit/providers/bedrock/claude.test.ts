import t from 'tap';
import { claudeRequest, ClaudeStream, readCount } from '#src/providers/bedrock/claude.js';
import type { ProviderCall } from '#src/providers/provider.js';
import { event, message } from '../../../support/bedrock.js';

const CALL = { settings: { betas: ['own-2026-01-01'] } } as unknown as ProviderCall;
const BODY =
  '{ "stream":true, "max_tokens" : 5,"model":"anthropic.claude-x", "anthropic_version":"1","messages":[{"role":"user","content":"\\u00e9  é"}], "max": 1.0}';

void t.test('the body stays as it is written, but for the members that Bedrock has elsewhere', (t) => {
  const betas = 'context-1m-2025-08-07, claude-code-20250219 ,interleaved-thinking-2025-05-14';
  t.same(claudeRequest(CALL, BODY, { door: 'messages', stream: true, betas }), {
    model: 'anthropic.claude-x',
    operation: 'invoke-with-response-stream',
    body: '{"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["own-2026-01-01","context-1m-2025-08-07","interleaved-thinking-2025-05-14"],"max_tokens" : 5,"messages":[{"role":"user","content":"\\u00e9  é"}],"max": 1.0}',
  });
  const { operation } = claudeRequest(CALL, BODY, { door: 'messages', stream: false, betas: '' });
  t.equal(operation, 'invoke');
  t.end();
});

void t.test('a count wants what InvokeModel would get', (t) => {
  const plain = { settings: { betas: [] } } as unknown as ProviderCall;
  const passed = { door: 'count_tokens', stream: false, betas: '' } as const;
  const { operation, body } = claudeRequest(plain, '{"model":"m","messages":[1]}', passed);
  t.equal(operation, 'count-tokens');
  const whole = JSON.parse(body) as { input: { invokeModel: { body: string } } };
  const { input } = whole;
  t.equal(
    Buffer.from(input.invokeModel.body, 'base64').toString(),
    '{"anthropic_version":"bedrock-2023-05-31","max_tokens":1,"messages":[1]}',
  );
  const thinking = claudeRequest(
    plain,
    '{"model":"m","thinking" : {"type":"enabled","budget_tokens":2048},"messages":[1]}',
    passed,
  );
  const counted = JSON.parse(thinking.body) as typeof whole;
  t.match(
    Buffer.from(counted.input.invokeModel.body, 'base64').toString(),
    /"max_tokens":2049,"thinking"/,
    'more than the thinking budget',
  );
  t.equal(readCount(Buffer.from('{"inputTokens":12}')), '{"input_tokens":12}');
  for (const wrong of ['{}', '{"inputTokens":"12"}', 'x'])
    t.throws(() => readCount(Buffer.from(wrong)), /no inputTokens/);
  t.end();
});

const chunk = (json: string): Buffer =>
  event('chunk', { bytes: Buffer.from(json).toString('base64'), p: 'ab' });

void t.test('a stream, cut anywhere', (t) => {
  const delta = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"é\\n\\u2028"}}';
  const bytes = Buffer.concat([
    chunk('{"type":"message_start","message":{}}'),
    event('later', {}),
    chunk(delta),
    chunk('{\n "x": 1,\r\n "type": "message_stop"}'),
  ]);
  const wanted = `event: message_start\ndata: {"type":"message_start","message":{}}\n\nevent: content_block_delta\ndata: ${delta}\n\nevent: message_stop\ndata: {  "x": 1,   "type": "message_stop"}\n\n`;
  for (let at = 0; at <= bytes.length; at++) {
    const stream = new ClaudeStream();
    const text = stream.push(bytes.subarray(0, at)) + stream.push(bytes.subarray(at)) + stream.end();
    if (text !== wanted) t.equal(text, wanted, `cut at ${at}`);
  }
  const cut = new ClaudeStream();
  cut.push(bytes.subarray(0, bytes.length - 1));
  t.throws(() => cut.end(), /ended inside of a message/);
  t.end();
});

void t.test('no line break of a provider is one of the event', (t) => {
  for (const lineBreak of ['\n', '\r', '\r\n', '\n\r\r']) {
    const blanks = ' '.repeat(lineBreak.length);
    const jsonWith = (space: string): string => `{"type":"ping",${space}"x":[1,${space}2]${space}}`;
    const written = new ClaudeStream().push(chunk(jsonWith(lineBreak)));
    t.equal(written, `event: ping\ndata: ${jsonWith(blanks)}\n\n`, JSON.stringify(lineBreak));
  }
  t.end();
});

void t.test('errors in a stream, and what is no event', (t) => {
  const error = message(
    { ':exception-type': 'throttlingException', ':message-type': 'exception' },
    { message: 'slowly' },
  );
  t.throws(() => new ClaudeStream().push(error), /slowly/);
  for (const wrong of ['[]', '3', '{"kind":"x"}', 'no json', String.raw`{"type":"ping\n\ndata: {}"}`])
    t.throws(() => new ClaudeStream().push(chunk(wrong)), /a chunk is no event/, wrong);
  t.end();
});
