/**
 * Each rule of the request: valid, invalid, and the edge between; what is read of a call; and what a refusal
 * says.
 */
import t from 'tap';
import { MESSAGES_MAX } from '#src/core/limits.js';
import type { ChatCall } from '#src/protocol/chat-call.js';
import { readChatBytes } from '#src/protocol/request-bytes.js';
import { readText } from '../../support/read-text.js';

const MESSAGES = [{ role: 'user', content: 'hello' }];

function accepted(body: unknown, text = JSON.stringify(body)): ChatCall {
  const result = readText(text);
  if (!result.ok) throw new Error(`refused: ${result.error.message}`);
  return result.call;
}

function refused(text: string): string {
  const result = readText(text);
  if (result.ok) throw new Error(`accepted: ${text.slice(0, 100)}`);
  if (result.error.code !== 'invalid_parameters') throw new Error(result.error.code);
  return result.error.message;
}

const request = (fields: object): object => ({ model: 'm', messages: MESSAGES, ...fields });
const refusedFields = (fields: object): string => refused(JSON.stringify(request(fields)));
const message = (fields: object): object => ({ model: 'm', messages: [MESSAGES[0], fields] });
const refusedMessage = (fields: unknown): string =>
  refused(JSON.stringify({ model: 'm', messages: [MESSAGES[0], fields] }));

void t.test(
  'numbers: both ends of the range are in, what is beyond is out, null is as good as absent',
  (t) => {
    const valid: Record<string, unknown[]> = {
      temperature: [0, 2, 1, 0.5, -0, null],
      top_p: [0, 1, 0.1, null],
      max_tokens: [0, 1, 1e3, 1e12, null],
      max_completion_tokens: [0, 1, 1e12, null],
      n: [1, 128, null],
      stream: [true, false, null],
      stream_options: [{}, { include_usage: true }, { include_usage: null, other: 1 }, null],
    };
    for (const [field, values] of Object.entries(valid)) {
      for (const value of values)
        t.ok(accepted(request({ [field]: value })), `${field} ${JSON.stringify(value)}`);
    }
    const invalid: [string, unknown, string][] = [
      ['temperature', 2.0001, 'temperature must be between 0 and 2, got 2.0001'],
      ['temperature', 3, 'temperature must be between 0 and 2, got 3'],
      ['temperature', -0.1, 'temperature must be between 0 and 2, got -0.1'],
      ['temperature', '1', 'temperature must be a number between 0 and 2, got "1"'],
      ['temperature', true, 'temperature must be a number between 0 and 2, got true'],
      ['top_p', 1.0001, 'top_p must be between 0 and 1, got 1.0001'],
      ['top_p', -0.1, 'top_p must be between 0 and 1, got -0.1'],
      ['top_p', '1', 'top_p must be a number between 0 and 1, got "1"'],
      ['max_tokens', -1, 'max_tokens must not be negative, got -1'],
      ['max_tokens', 1.5, 'max_tokens must be an integer, got 1.5'],
      ['max_tokens', '10', 'max_tokens must be an integer, got "10"'],
      ['max_completion_tokens', -1, 'max_completion_tokens must not be negative, got -1'],
      ['max_completion_tokens', 0.1, 'max_completion_tokens must be an integer, got 0.1'],
      ['n', 0, 'n must be an integer between 1 and 128, got 0'],
      ['n', 129, 'n must be an integer between 1 and 128, got 129'],
      ['n', 1.5, 'n must be an integer between 1 and 128, got 1.5'],
      ['stream', 'true', 'stream must be true or false, got "true"'],
      ['stream', 1, 'stream must be true or false, got 1'],
      ['stream_options', true, 'stream_options must be an object, got true'],
      ['stream_options', [], 'stream_options must be an object, got an array'],
      ['stream_options', { include_usage: 1 }, 'stream_options.include_usage must be true or false, got 1'],
      ['model', 7, 'model must be a non-empty string, got 7'],
      ['model', '', 'model must be a non-empty string, got ""'],
      ['model', null, 'model must be a non-empty string, got null'],
      ['model', undefined, 'model must be a non-empty string, got nothing'],
      ['messages', undefined, 'messages must be an array of messages, got nothing'],
      ['messages', {}, 'messages must be an array of messages, got an object'],
      ['messages', [], 'messages must have at least 1 item, got 0'],
    ];
    for (const [field, value, expected] of invalid) t.equal(refusedFields({ [field]: value }), expected);
    t.match(
      refused('{"model":"m","messages":[{"role":"user","content":""}],"temperature":1e400}'),
      /got Infinity/,
    );
    t.end();
  },
);

void t.test('messages: roles, contents and parts', (t) => {
  const roles = ['system', 'developer', 'user', 'assistant', 'tool', 'function'];
  for (const role of roles) t.ok(accepted(message({ role, content: '' })), role);
  const calls = { role: 'assistant', tool_calls: [] };
  t.ok(accepted(message({ ...calls, content: null })));
  t.ok(accepted(message(calls)), 'content absent beside tool_calls');
  t.ok(accepted(message({ ...calls, content: 'text' })));
  t.ok(accepted(message({ role: 'user', content: [] })));
  t.ok(accepted(message({ role: 'user', content: [{ type: 'text', text: 'x' }, { type: 'image_url' }] })));

  const others: [name: string, given: unknown, wrong: unknown][] = [
    ['function_call', { name: 'f', arguments: '{}' }, 'f'],
    ['refusal', 'I cannot', 3],
    ['audio', { id: 'audio_1' }, 'audio_1'],
  ];
  const rule =
    'must be a string, an array of parts, or null beside tool_calls, function_call, refusal or audio';
  for (const [name, given, wrong] of others) {
    const said = { role: 'assistant', [name]: given };
    // Sound that a provider has stored needs `pass_members`, which the members say that route the call.
    t.ok(accepted(message({ ...said, content: null })), `${name} in place of content`);
    t.ok(accepted(message(said)), `content absent beside ${name}`);
    t.ok(accepted(message({ ...said, content: 'text', tool_calls: null })));
    for (const nothing of [null, wrong])
      t.match(
        refusedMessage({ role: 'assistant', content: null, [name]: nothing }),
        `messages[1].content ${rule}`,
        `${name}: ${JSON.stringify(nothing)}`,
      );
    t.equal(
      refused(JSON.stringify({ model: 'm', messages: [said, { role: 'user' }] })),
      `messages[1].content ${rule}, got nothing`,
      `${name} of the message before`,
    );
  }
  t.equal(
    refusedMessage({ role: 'robot', content: '' }),
    `messages[1].role must be one of ${roles.join(', ')}, got "robot"`,
  );
  t.match(refusedMessage({ content: '' }), /^messages\[1\]\.role .*got nothing$/);
  t.match(refusedMessage({ role: 5, content: '' }), /^messages\[1\]\.role .*got 5$/);
  t.equal(refusedMessage({ role: 'user' }), `messages[1].content ${rule}, got nothing`);
  t.equal(refusedMessage({ role: 'user', content: null }), `messages[1].content ${rule}, got null`);
  t.equal(refusedMessage({ ...calls, content: 5 }), `messages[1].content ${rule}, got 5`);
  t.equal(refusedMessage({ role: 'user', content: {} }), `messages[1].content ${rule}, got an object`);
  t.equal(
    refusedMessage({ ...calls, tool_calls: null, content: null }),
    `messages[1].content ${rule}, got null`,
  );
  const part = { type: 'text' };
  t.equal(
    refusedMessage({ role: 'user', content: [part, 'x'] }),
    'messages[1].content[1] must be an object, got "x"',
  );
  t.equal(
    refusedMessage({ role: 'user', content: [part, {}] }),
    'messages[1].content[1].type must be a string, got nothing',
  );
  t.equal(refusedMessage(null), 'messages[1] must be an object, got null');
  t.equal(refusedMessage([]), 'messages[1] must be an object, got an array');
  t.end();
});

void t.test('as many messages as allowed, and one more', (t) => {
  const text = (count: number): string =>
    `{"model":"m","messages":[${Array<string>(count).fill('{"role":"user","content":""}').join(',')}]}`;
  t.ok(accepted(undefined, text(10_000)));
  t.ok(accepted(undefined, text(MESSAGES_MAX)));
  t.equal(
    refused(text(MESSAGES_MAX + 1)),
    `messages must have at most ${MESSAGES_MAX} items, got ${MESSAGES_MAX + 1}`,
  );
  t.end();
});

void t.test('a long value is shortened in a refusal', (t) => {
  const long = refusedFields({ temperature: 'x'.repeat(100_000) });
  t.equal(long, `temperature must be a number between 0 and 2, got "${'x'.repeat(40)}…"`);
  t.end();
});

void t.test('what is read of a call', (t) => {
  const least = accepted(request({}));
  t.match(least, { model: 'm', stream: false, includeUsage: false, outputTokensMax: undefined, choices: 1 });
  const text =
    ' {"messages":[{"role":"user","content":"€"}],"n":3,"max_tokens":0, "model" : "mödel" ,"seed":1}\n';
  const whole = accepted(undefined, text);
  t.match(whole, {
    model: 'mödel',
    outputTokensMax: 0,
    choices: 3,
    body: text,
    bodyBytes: Buffer.byteLength(text),
  });
  t.equal(whole.body.slice(whole.modelStart, whole.modelEnd), '"mödel"');
  t.equal(accepted(request({ max_completion_tokens: 5 })).outputTokensMax, 5);
  t.equal(accepted(request({ max_completion_tokens: null, max_tokens: 7 })).outputTokensMax, 7);
  t.equal(accepted(request({ max_completion_tokens: 5, max_tokens: 7 })).outputTokensMax, 7, 'the larger');
  t.equal(accepted(request({ max_completion_tokens: 5, max_tokens: 7 })).outputTokensField, 'max_tokens');
  t.equal(accepted(request({ max_completion_tokens: 8 })).outputTokensField, 'max_completion_tokens');
  t.equal(accepted(request({ max_tokens: null })).outputTokensField, undefined);
  t.equal(accepted(request({ max_completion_tokens: 8, max_tokens: 7 })).outputTokensMax, 8, 'the larger');
  t.match(accepted(request({ stream: true })), { stream: true, includeUsage: false });
  t.match(accepted(request({ stream: true, stream_options: { include_usage: true } })), {
    includeUsage: true,
  });
  t.match(accepted(request({ stream: true, stream_options: { include_usage: false } })), {
    includeUsage: false,
  });
  t.equal(
    accepted(undefined, '{"mod\\u0065l":"\\u006d","messages":[{"role":"user","content":""}]}').model,
    'm',
  );
  t.end();
});

void t.test('__proto__ is a name like any other', (t) => {
  const text = '{"__proto__":{"model":"m","stream":true},"messages":[{"role":"user","content":""}]}';
  t.equal(refused(text), 'model must be a non-empty string, got nothing');
  const given =
    '{"model":"m","__proto__":{"stream":true},"messages":[{"role":"user","content":"","__proto__":null}]}';
  t.match(accepted(undefined, given), { stream: false, body: given });
  t.equal((Object.prototype as Record<string, unknown>).stream, undefined);
  t.end();
});

void t.test('a text that is no JSON object', (t) => {
  const prefix = 'the request body must be';
  t.equal(refused(''), `${prefix} a JSON object, got an empty body`);
  t.equal(refused(' \r\n\t'), `${prefix} a JSON object, got an empty body`);
  t.equal(refused('[]'), `${prefix} a JSON object, got an array`);
  t.equal(refused('null'), `${prefix} a JSON object, got null`);
  t.equal(refused('"text"'), `${prefix} a JSON object, got "text"`);
  t.equal(refused('\uFEFF{}'), 'the request body must not start with a byte-order mark');
  t.match(refused('{"model":"m"'), /^the request body must be valid JSON: an unexpected end at position 12$/);
  t.match(refused('{'), /^the request body must be valid JSON: ./);
  const secret = 'the contents of the body';
  for (const text of [
    `{"model":${secret}}`,
    `{"${secret}`,
    `{"a":"${secret}",}`,
    `{"a":"${secret}\n"}`,
    secret,
  ]) {
    const sentence = refused(text);
    t.match(sentence, /^the request body must be valid JSON: \S/, text);
    t.notMatch(sentence, /contents/, sentence);
    t.ok(sentence.length < 150, sentence);
  }
  t.end();
});

void t.test('every truncation of a request is refused', (t) => {
  const text = JSON.stringify(request({ temperature: 0.5, tools: [{ a: 'x"\\y' }] }));
  for (let length = 0; length < text.length; length++) refused(text.slice(0, length));
  t.ok(accepted(undefined, text));
  t.end();
});

void t.test('nesting of a million levels is refused wherever it stands', (t) => {
  const depth = 1_000_000;
  const deep = '['.repeat(depth) + ']'.repeat(depth);
  const bound = 'the request body must be nested at most 64 levels deep';
  t.equal(refused(`{"x":${deep},"model":"m","messages":[{"role":"user","content":""}]}`), bound);
  t.equal(refused(`{"model":${deep},"messages":[]}`), bound);
  t.equal(refused(deep), bound);
  t.equal(refused('[{"a":'.repeat(depth)), bound);
  t.end();
});

void t.test('bytes become text only if they are UTF-8', (t) => {
  const around = (content: Uint8Array): Buffer =>
    Buffer.concat([
      Buffer.from('{"messages":[{"role":"user","content":"'),
      content,
      Buffer.from('"}],"model":"m"}'),
    ]);
  for (const text of ['', 'ascii', 'ümlaut', '€', '😀 x', '\uFEFFx', 'é€😀'.repeat(100)]) {
    const bytes = around(Buffer.from(text));
    for (const given of [
      bytes,
      new Uint8Array(bytes),
      new Uint8Array([255, ...bytes, 255]).subarray(1, -1),
    ]) {
      const read = readChatBytes(given);
      t.equal(read.ok && read.call.body, bytes.toString());
      t.equal(read.ok && read.call.body.slice(read.call.modelStart, read.call.modelEnd), '"m"');
    }
  }
  const invalid = [
    [0x80],
    [0xc3],
    [0xc0, 0x80],
    [0xed, 0xa0, 0x80],
    [0xf4, 0x90, 0x80, 0x80],
    [0x22, 0xff, 0x22],
  ];
  for (const bytes of invalid) {
    const read = readChatBytes(around(Uint8Array.from(bytes)));
    t.match(read.ok ? '' : read.error.message, /UTF-8/, bytes.join());
  }
  t.end();
});
