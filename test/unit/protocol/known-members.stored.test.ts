/** What a body names of a provider's store, which all callers of one key share. */
import t, { type Test } from 'tap';
import { CHAT } from '#src/doors/chat/chat-door.js';
import type { Door } from '#src/doors/door.js';
import { COUNT_TOKENS, MESSAGES } from '#src/doors/messages/messages-door.js';
import { RESPONSES } from '#src/doors/responses/responses-door.js';

/** The routing members of a body, or the sentence of its refusal; the same of a large body in pieces. */
function routingOf(t: Test, door: Door, body: string): readonly string[] {
  const bytes = Buffer.from(body);
  const [small, large] = [door.read(bytes), door.readPieces([bytes.subarray(0, 25), bytes.subarray(25)])].map(
    (result) => (result.ok ? result.call.routingMembers : [result.error.message]),
  );
  t.same(large, small, body);
  return small!;
}

const FILE = ['file_id'];
const ADDRESS = ['storage_url'];
const NOTHING: readonly string[] = [];

const part = (members: string): string => `"messages":[{"role":"user","content":[{${members}}]}]`;
const text = '"messages":[{"role":"user","content":"x"}]';

/** By the address of an image: what it is taken for. */
const ADDRESSES: readonly (readonly [string, readonly string[]])[] = [
  ['https://example.com/a.png', NOTHING],
  ['HTTP://example.com/gs://x', NOTHING],
  ['data:image/png;base64,AAAA', NOTHING],
  ['https://storage.googleapis.com/bucket/a.png?X-Goog-Signature=1', NOTHING],
  ['https://www.youtube.com/watch?v=1', NOTHING],
  ['iVBORw0KGgo=', NOTHING],
  ['', NOTHING],
  ['gs://bucket/a.png', ADDRESS],
  ['s3://bucket/a.png', ADDRESS],
  ['S3://bucket/a.png', ADDRESS],
  [' gs://bucket/a.png', ADDRESS],
  ['\\u0067s:\\/\\/bucket/a.png', ADDRESS],
  ['\\ngs://bucket/a.png', ADDRESS],
  // Python's `strip` removes these too.
  ...['\\u00a0', '\\u2003', '\\u3000', '\\ufeff', '\\u0085', '\\u001f', '\\u2028'].flatMap((space) => [
    [`${space}gs://bucket/a.png`, ADDRESS] as const,
    [`${space} https://example.com/a.png`, NOTHING] as const,
  ]),
  ['g\\ns\\t://bucket/a.png', ADDRESS],
  ['ht\\rtps://example.com/a.png', NOTHING],
  ['ms://file-1', ADDRESS],
  ['file:///etc/passwd', ADDRESS],
  ['https://generativelanguage.googleapis.com/v1beta/files/abc', ADDRESS],
  ['https://user@GENERATIVELANGUAGE.googleapis.com:443/v1beta/files/abc', ADDRESS],
  ['https://generativelanguag%65.googleapis.com./v1beta/files/abc', ADDRESS],
];

void t.test('chat: an address that the provider reads with the rights of its key', (t) => {
  for (const [address, expected] of ADDRESSES) {
    for (const member of [
      `"type":"image_url","image_url":{"url":"${address}","detail":"low"}`,
      `"type":"image_url","image_url":"${address}"`,
      `"type":"video_url","video_url":{"url":"${address}"}`,
      `"audio_url":{"url":"${address}"},"type":"audio_url"`,
      `"type":"document_url","document_url":"${address}"`,
      `"type":"file","file":{"file_data":"${address}"}`,
      `"type":"input_audio","input_audio":{"data":"${address}","format":"wav"}`,
    ])
      t.same(routingOf(t, CHAT, `{"model":"m",${part(member)}}`), expected, member);
    for (const image of [
      `{"type":"image_url","image_url":{"url":"${address}"},"index":0}`,
      `{"image_url":"${address}"}`,
    ]) {
      const made = `"messages":[{"role":"assistant","content":"","images":[${image}]},{"role":"user","content":"x"}]`;
      t.same(routingOf(t, CHAT, `{"model":"m",${made}}`), expected, made);
    }
  }
  t.end();
});

void t.test('chat: files, sound and caches that the provider has stored', (t) => {
  const cases: readonly (readonly [string, readonly string[]])[] = [
    [part('"type":"file","file":{"file_id":"file-1"}'), FILE],
    [part('"type":"file","file":{"file_id":"fil\\u0065-1"}'), FILE],
    [part('"type":"file","file":{"file_id":7}'), FILE],
    [part('"type":"file","file":{"file_id":null,"file_data":"data:,x"}'), NOTHING],
    [part('"type":"file","file":{"file_id":"https://example.com/a.pdf"}'), NOTHING],
    [part('"type":"file","file":{"file_id":"s3://bucket/a.pdf"}'), ADDRESS],
    [part('"type":"file","file":{"file_data":"JVBERi0=","filename":"s3://a"}'), NOTHING],
    [part('"type":"file","file_id":"123"'), FILE],
    [part('"type":"text","text":"gs://bucket file_id"'), NOTHING],
    [
      '"messages":[{"role":"assistant","content":"","audio":{"id":"audio_1"}},{"role":"user","content":"x"}]',
      ['audio_id'],
    ],
    ['"messages":[{"role":"assistant","content":"a","audio":null},{"role":"user","content":"x"}]', NOTHING],
    [`${text},"audio":{"voice":"ash","format":"wav"}`, NOTHING],
    [`${text},"extra_body":{"google":{"cached_content":"cachedContents/1"}}`, ['cached_content']],
    [`${text},"google":{"cached_content":"cachedContents/1"}`, ['cached_content']],
    [`${text},"google":{"cached\\u005fcontent":"cachedContents/1"}`, ['cached_content']],
    [`${text},"google":{"cached_content":null,"thinking_config":{"cached_content":1}}`, NOTHING],
    [`${text},"cached_content":"cachedContents/1"`, ['cached_content']],
    [`${text},"data_sources":[{"type":"azure_search"}]`, ['data_sources']],
    [`${text},"session_params":{"id":"s"}`, ['session_params']],
    [`${text},"extra_body":{"google":{},"model":"dear"}`, ['extra_body']],
    [`${text},"extra_body":{"google":{"thinking_config":{}}}`, NOTHING],
    [`${text},"extra_body":null`, NOTHING],
    [`${text},"extra_headers":{"a":"b"}`, ['extra_headers']],
  ];
  for (const [members, expected] of cases)
    t.same(routingOf(t, CHAT, `{"model":"m",${members}}`), expected, members);
  const two = part('"type":"file","file":{"file_id":"a"}},{"type":"file","file":{"file_id":"b"}');
  t.same(routingOf(t, CHAT, `{"model":"m",${two},"models":["b"]}`), ['models', 'file_id'], 'each once');
  t.same(routingOf(t, CHAT, `{"model":"m",${text},"google":{"cachedContent":"c"}}`), [
    'google.cachedContent must be written as cached_content',
  ]);
  t.same(
    routingOf(t, CHAT, `{"model":"m",${text},"google":{"cached_content":"c","cached_content":null}}`),
    ['google.cached_content must be given once, in whatever case'],
    'whichever of two a decoder takes',
  );
  t.end();
});

void t.test('messages: files that Anthropic stores', (t) => {
  const block = (block: string): string =>
    `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[${block}]}]}`;
  const cases: readonly (readonly [string, readonly string[]])[] = [
    ['{"type":"document","source":{"type":"file","file_id":"file_1"}}', FILE],
    ['{"type":"image","source":{"file_id":"file_1","type":"file"}}', FILE],
    ['{"type":"container_upload","file_id":"file_1"}', FILE],
    [
      '{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"file","file_id":"file_1"}}]}}',
      FILE,
    ],
    ['{"type":"document","source":{"type":"content","content":"file_id: gs://a"}}', NOTHING],
    ['{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}', NOTHING],
    ['{"type":"image","source":{"type":"url","url":"gs://bucket/a.png"}}', ADDRESS],
    ['{"type":"document","source":{"type":"text","media_type":"text/plain","data":"s3: a store"}}', NOTHING],
  ];
  for (const door of [MESSAGES, COUNT_TOKENS])
    for (const [one, expected] of cases) {
      const body = door.isFree === true ? block(one).replace('"max_tokens":9,', '') : block(one);
      t.same(routingOf(t, door, body), expected, `${door.name} ${one}`);
      const inResult = `{"type":"tool_result","tool_use_id":"t","content":[${one}]}`;
      // Uploads go to a container from a turn of the user alone.
      if (!one.includes('container_upload'))
        t.same(routingOf(t, door, body.replace(one, inResult)), expected, `${door.name} ${inResult}`);
    }
  t.end();
});

void t.test('responses: files, and items that are read from the store by their id', (t) => {
  const item = (input: string): string => `{"model":"m","input":[${input}]}`;
  const message = (member: string): string => item(`{"role":"user","content":[{${member}}]}`);
  const ITEM = ['item_reference'];
  const cases: readonly (readonly [string, readonly string[]])[] = [
    [message('"type":"input_file","file_id":"file-1"'), FILE],
    [message('"type":"input_image","file_id":"file-1"'), FILE],
    [message('"type":"input_image","image_url":"https://example.com/a.png","file_id":null'), NOTHING],
    [message('"type":"input_image","image_url":"gs://bucket/a.png"'), ADDRESS],
    [message('"type":"input_file","file_url":"s3://bucket/a.pdf"'), ADDRESS],
    [item('{"type":"computer_call_output","output":{"type":"computer_screenshot","file_id":"f"}}'), FILE],
    [item('{"type":"function_call_output","output":[{"type":"input_file","file_id":"f"}]}'), FILE],
    [item('{"type":"item_reference","id":"msg_1"}'), ITEM],
    [item('{"id":"msg_1"}'), ITEM],
    [item('{"type":null,"id":"msg_1"}'), ITEM],
    [item('{"type":null,"id":"msg_1","role":"user"}'), ITEM],
    [item('{"role":"user","content":"x"}'), NOTHING],
    [item('{"type":"message","id":"msg_1","role":"assistant","content":[]}'), NOTHING],
    [item('{"type":"reasoning","id":"rs_0a1b","summary":[]}'), ITEM],
    [item('{"type":"reasoning","id":"rs_0a1b","summary":[],"encrypted_content":null}'), ITEM],
    [item('{"type":"reasoning","id":"rs_0a1b","summary":[],"encrypted_content":""}'), ITEM],
    [item('{"type":"reasoning","id":"rs_0a1b","summary":[],"encrypted_content":"gAAA"}'), NOTHING],
    [item('{"type":"reasoning","summary":[{"type":"summary_text","text":"x"}]}'), NOTHING],
    // As the gateway numbers those of translated responses, which nobody stores.
    [item('{"type":"reasoning","id":"rs_req-1_0","summary":[]}'), NOTHING],
    [item('{"type":"image_generation_call","id":"ig_1"}'), ITEM],
    [item('{"type":"image_generation_call","id":"ig_1","result":"AAAA"}'), NOTHING],
  ];
  for (const [body, expected] of cases) t.same(routingOf(t, RESPONSES, body), expected, body);
  t.end();
});
