/** How many parts of a prompt are not text, at each door: the hold takes each for some tokens. */
import t from 'tap';
import { CHAT } from '#src/doors/chat/chat-door.js';
import type { Door } from '#src/doors/door.js';
import { COUNT_TOKENS, MESSAGES } from '#src/doors/messages/messages-door.js';
import { RESPONSES } from '#src/doors/responses/responses-door.js';
import { SIMPLE_DOORS } from '#src/doors/simple/simple-doors.js';
import {
  mediaTokensOf,
  promptTokensMaxOf,
  withModelId,
  withOutputTokensMax,
} from '#src/protocol/chat-call.js';

const {
  embeddings: EMBEDDINGS,
  completions: COMPLETIONS,
  moderations: MODERATIONS,
  rerank: RERANK,
} = SIMPLE_DOORS;

const URL_OF = { url: 'https://x.example/1' };
const IMAGE = { type: 'image_url', image_url: URL_OF };
const TEXT = { type: 'text', text: 'what is it?' };
/** Makes a body large, so that it stays bytes. */
const LONG = 'x'.repeat(8_000);

type Case = readonly [name: string, parts: number, body: object | string];

function check(door: Door, cases: readonly Case[]): void {
  void t.test(door.name, (t) => {
    for (const [name, parts, body] of cases) {
      const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
      for (const read of [door.read(bytes), door.readPieces([bytes.subarray(0, 9), bytes.subarray(9)])]) {
        if (!read.ok) throw new Error(`${name}: ${read.error.message}`);
        t.equal(read.call.mediaParts, parts, name);
      }
    }
    t.end();
  });
}

const chat = (content: unknown, more: object = {}): object => ({
  model: 'm',
  messages: [{ role: 'user', content, ...more }],
});
check(CHAT, [
  ['a text', 0, chat('image_url')],
  ['no parts', 0, chat([])],
  ['texts', 0, chat([TEXT, { type: 'refusal', refusal: 'no' }, { type: 'thinking', thinking: [TEXT] }])],
  ['an image by its address', 1, chat([TEXT, IMAGE])],
  ['an address that is a string', 1, chat([{ type: 'image_url', image_url: URL_OF.url }])],
  ['data', 1, chat([{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } }])],
  ['members in another order', 1, chat([{ image_url: URL_OF, type: 'image_url' }])],
  [
    'sound, video, files',
    5,
    chat([
      { type: 'input_audio', input_audio: { data: 'AA==', format: 'wav' } },
      { type: 'audio_url', audio_url: URL_OF },
      { type: 'video_url', video_url: URL_OF },
      { type: 'file', file: { file_data: 'data:application/pdf;base64,AA==' } },
      { type: 'document_url', document_url: URL_OF.url },
    ]),
  ],
  ['a type that is not known', 1, chat([{ type: 'video', video: [URL_OF.url] }])],
  [
    'a type with an escape',
    1,
    '{"model":"m","messages":[{"role":"user","content":[{"type":"\\u0069mage_url"}]}]}',
  ],
  [
    'a name with an escape',
    1,
    '{"model":"m","messages":[{"role":"user","content":[{"\\u0074ype":"image_url"}]}]}',
  ],
  [
    'several messages',
    2,
    { model: 'm', messages: [1, 2].map(() => ({ role: 'user', content: [TEXT, IMAGE] })) },
  ],
  [
    'a result of a tool',
    1,
    { model: 'm', messages: [{ role: 'tool', tool_call_id: 'c', content: [IMAGE] }] },
  ],
  [
    'images of an answer, which are read whatever their type is',
    3,
    chat('look', { images: [IMAGE, { image_url: URL_OF }, { type: 'text', text: '', image_url: URL_OF }] }),
  ],
  ['a large body', 2, chat([{ type: 'text', text: LONG }, IMAGE, IMAGE])],
  ['parts that are no messages', 0, { ...chat('hi'), metadata: { content: [IMAGE] } }],
]);

const source = (type: string): object => ({ type, media_type: 'image/png', data: 'AA==' });
const messages = (content: unknown, more: object = {}): object => ({
  model: 'm',
  messages: [{ role: 'user', content }],
  ...more,
});
const BLOCKS: readonly Case[] = [
  ['a text', 0, messages('hi')],
  ['texts and tools', 0, messages([TEXT, { type: 'tool_use', id: 't', name: 'n', input: { source: {} } }])],
  ['an image', 1, messages([TEXT, { type: 'image', source: { type: 'url', ...URL_OF } }])],
  ['data', 1, messages([{ type: 'image', source: source('base64') }])],
  ['a document', 1, messages([{ type: 'document', title: 'a', source: { type: 'url', ...URL_OF } }])],
  ['a document of text', 0, messages([{ type: 'document', source: { type: 'text', data: LONG } }])],
  [
    'of blocks',
    1,
    messages([
      {
        type: 'document',
        source: { type: 'content', content: [TEXT, { type: 'image', source: source('base64') }] },
      },
    ]),
  ],
  ['a source without a type', 1, messages([{ type: 'video', source: URL_OF }])],
  ['a page that was searched', 0, messages([{ type: 'search_result', source: URL_OF.url, content: [TEXT] }])],
  [
    'a result of a tool',
    2,
    messages([
      {
        type: 'tool_result',
        tool_use_id: 't',
        content: [TEXT, ...[1, 2].map(() => ({ type: 'image', source: source('base64') }))],
      },
    ]),
  ],
  [
    'in the system prompt',
    1,
    messages('hi', { system: [{ type: 'document', source: { type: 'url', ...URL_OF } }] }),
  ],
  [
    'a large body',
    1,
    messages([
      { type: 'text', text: LONG },
      { type: 'image', source: source('base64') },
    ]),
  ],
];
check(
  MESSAGES,
  BLOCKS.map(([name, parts, body]) => [name, parts, { ...(body as object), max_tokens: 7 }]),
);
check(COUNT_TOKENS, BLOCKS);

const responses = (...content: object[]): object => ({ model: 'm', input: [{ role: 'user', content }] });
check(RESPONSES, [
  ['a text', 0, { model: 'm', input: 'hi' }],
  ['texts', 0, responses({ type: 'input_text', text: 'hi' })],
  [
    'an image',
    1,
    responses({ type: 'input_text', text: 'hi' }, { type: 'input_image', image_url: URL_OF.url }),
  ],
  ['a file', 1, responses({ type: 'input_file', file_url: URL_OF.url })],
  [
    'an answer, its thoughts, and what tools gave',
    2,
    {
      model: 'm',
      input: [
        {
          type: 'reasoning',
          summary: [{ type: 'summary_text', text: 'hm' }],
          content: [{ type: 'reasoning_text', text: 'so' }],
        },
        {
          type: 'message',
          role: 'assistant',
          content: [{ type: 'output_text', text: 'hi', annotations: [] }],
        },
        { type: 'shell_call_output', call_id: 's', output: [{ stdout: 'ok', stderr: '' }] },
        {
          type: 'function_call_output',
          call_id: 'f',
          output: [{ type: 'input_image', image_url: URL_OF.url }],
        },
        {
          type: 'computer_call_output',
          call_id: 'c',
          output: { type: 'computer_screenshot', image_url: URL_OF.url },
        },
      ],
    },
  ],
  [
    'a large body',
    1,
    responses({ type: 'input_text', text: LONG }, { type: 'input_image', image_url: URL_OF.url }),
  ],
]);

check(MODERATIONS, [
  ['a text', 0, { model: 'm', input: 'hi' }],
  ['parts, which no provider bills', 0, { model: 'm', input: [TEXT, IMAGE] }],
]);
check(RERANK, [
  ['texts', 0, { model: 'm', query: 'q', documents: ['a', { text: 'b', image: 1 }] }],
  ['an image', 1, { model: 'm', query: 'q', documents: ['a', { image: URL_OF.url }] }],
  [
    'texts of other names',
    0,
    {
      ...{ model: 'm', query: 'q', rank_fields: ['title', 'body'] },
      documents: [{ title: 't', body: 'b' }, { body: 'b' }, { text: 'b' }],
    },
  ],
  [
    'no text of those names, and images whatever is said of them',
    3,
    {
      ...{ model: 'm', query: 'q', rank_fields: ['title', 'image', 'constructor', 1] },
      documents: [{ body: 'b' }, { title: 1 }, { image: URL_OF.url, title: 't' }],
    },
  ],
  [
    'more names than are looked for',
    1,
    { model: 'm', query: 'q', rank_fields: Array(101).fill('title'), documents: [{ title: 't' }] },
  ],
]);
check(EMBEDDINGS, [['texts', 0, { model: 'm', input: ['a', 'b'] }]]);
check(COMPLETIONS, [['a text', 0, { model: 'm', prompt: 'a' }]]);

void t.test(
  'a call keeps its parts when its body is changed, and what they are taken for is bounded',
  (t) => {
    const read = CHAT.read(Buffer.from(JSON.stringify(chat([TEXT, IMAGE, IMAGE]))));
    if (!read.ok) throw new Error(read.error.message);
    const { call } = read;
    t.equal(withOutputTokensMax(withModelId(call, 'other'), 5).mediaParts, 2);
    t.equal(promptTokensMaxOf(call, { mediaPartTokens: 0 }), call.bodyBytes);
    t.equal(promptTokensMaxOf(call, { mediaPartTokens: 1_500 }), call.bodyBytes + 3_000);
    const most = mediaTokensOf({ mediaParts: 500_000 }, { mediaPartTokens: 1_048_576 });
    t.equal(most, 64 * 1_048_576, 'no report of more is believed');
    t.end();
  },
);
