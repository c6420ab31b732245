/**
 * Thoughts and texts of servers that differ, as Messages and Responses have them, whole and streamed; and the
 * messages of the system, of which some servers take one.
 */
import t from 'tap';
import type { Dialect, DoorCall } from '#src/doors/door.js';
import { textOf, thoughtsOf, withOneSystem } from '#src/doors/message-parts.js';
import { MESSAGES_DIALECT } from '#src/doors/messages/messages-dialect.js';
import { RESPONSES_DIALECT } from '#src/doors/responses/responses-dialect.js';

const CALL: DoorCall = { requestId: 'req_a-1', model: 'm', stream: false, body: {}, nowMs: 0 };

/** A thinking chunk of Mistral's, of its ThinkChunk and TextChunk. */
const thinking = (text: string): object => ({ type: 'thinking', thinking: [{ type: 'text', text }] });
const said = (text: string): object => ({ type: 'text', text });

/** Deltas that amount to the thoughts "Hm, so." and the text "Hello you". */
const DELTAS: Readonly<Record<string, readonly object[]>> = {
  'DeepSeek, vLLM': [
    { content: null, reasoning_content: 'Hm,' },
    { content: '', reasoning_content: ' so.' },
    { content: 'Hello', reasoning_content: null },
    { content: ' you' },
  ],
  'OpenRouter, Groq': [
    { content: '', reasoning: 'Hm,' },
    { content: '', reasoning: ' so.', reasoning_content: '' },
    { content: 'Hello you', reasoning: null },
  ],
  Mistral: [
    { role: 'assistant', content: '' },
    { content: [thinking('Hm,')] },
    { content: [thinking(' so.')] },
    { content: [said('Hello')] },
    { content: ' you' },
  ],
  'Mistral, thoughts and text in one': [
    { content: [thinking('Hm,'), { type: 'thinking', thinking: [], closed: true }] },
    { content: [thinking(' so.'), said('Hello')] },
    { content: ' you' },
  ],
};
const WHOLES: Readonly<Record<string, object>> = {
  DeepSeek: { content: 'Hello you', reasoning_content: 'Hm, so.' },
  Groq: { content: 'Hello you', reasoning: 'Hm, so.' },
  Mistral: { content: [thinking('Hm, so.'), said('Hello'), said(' you')] },
};

interface Messages {
  readonly content: unknown;
}
interface Responses {
  readonly output: readonly {
    readonly type: string;
    readonly summary?: unknown;
    readonly content?: unknown;
  }[];
}

const MESSAGES_CONTENT = [
  { type: 'thinking', thinking: 'Hm, so.', signature: '' },
  { type: 'text', text: 'Hello you' },
];
const RESPONSES_OUTPUT = [
  { type: 'reasoning', summary: [{ type: 'summary_text', text: 'Hm, so.' }] },
  { type: 'message', content: [{ type: 'output_text', text: 'Hello you' }] },
];

void t.test('whole', (t) => {
  for (const [server, message] of Object.entries(WHOLES)) {
    const answer = { choices: [{ index: 0, message, finish_reason: 'stop' }] };
    const { content } = JSON.parse(MESSAGES_DIALECT.translator!.fromChat(answer, CALL)) as Messages;
    t.same(content, MESSAGES_CONTENT, server);
    const response = JSON.parse(RESPONSES_DIALECT.translator!.fromChat(answer, CALL)) as Responses;
    t.match(response.output, RESPONSES_OUTPUT, server);
    t.equal(response.output.length, 2, server);
  }
  t.end();
});

void t.test('streamed', (t) => {
  for (const [server, deltas] of Object.entries(DELTAS)) {
    const chunks = [
      ...deltas.map((delta) => ({ choices: [{ index: 0, delta, finish_reason: null }] })),
      { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] },
    ];
    const eventsOf = ({ translator }: Dialect): Record<string, unknown>[] => {
      const stream = translator!.openStream({ ...CALL, stream: true });
      const text = chunks.map((chunk) => stream.push(chunk)).join('') + stream.end();
      return [...text.matchAll(/^data: (.*)$/gm)].map(
        ([, data]) => JSON.parse(data!) as Record<string, unknown>,
      );
    };
    const blocks: { type: string; text: string }[] = [];
    for (const { type, content_block: block, delta } of eventsOf(MESSAGES_DIALECT)) {
      if (type === 'content_block_start') blocks.push({ type: (block as { type: string }).type, text: '' });
      const { text, thinking } = (delta ?? {}) as Readonly<Record<string, string | undefined>>;
      if (type === 'content_block_delta') blocks.at(-1)!.text += text ?? thinking ?? '';
    }
    const wanted = [
      { type: 'thinking', text: 'Hm, so.' },
      { type: 'text', text: 'Hello you' },
    ];
    t.same(blocks, wanted, server);
    const { response } = eventsOf(RESPONSES_DIALECT).at(-1)! as { response: Responses };
    t.match(response.output, RESPONSES_OUTPUT, server);
    t.equal(response.output.length, 2, server);
  }
  t.end();
});

void t.test('no text is both content and a thought', (t) => {
  const parts = [thinking('a'), said('b'), { type: 'refusal', refusal: 'c' }, null, 'd'];
  t.equal(textOf(parts), 'b');
  t.equal(thoughtsOf({ content: parts }), 'a');
  t.equal(thoughtsOf({ content: 'x', reasoning_content: 3, reasoning: [] }), '');
  t.equal(textOf(undefined), '');
  t.end();
});

void t.test('messages of the system at the start become one', (t) => {
  const text = (text: string): object => ({ type: 'text', text });
  const system = (content: unknown): object => ({ role: 'system', content });
  const user = { role: 'user', content: 'x' };
  const image = system([text('c'), { type: 'image_url', image_url: { url: 'https://x/y' } }]);
  const parts = system([text('b'), text('c')]);
  for (const [messages, joined] of [
    [[], []],
    [[user], [user]],
    [[system('a')], [system('a')]],
    [
      [parts, user],
      [parts, user],
    ],
    [[system('a'), parts], [system('a\n\nb\n\nc')]],
    [
      [system(''), parts, system([]), user, system('d'), system('e')],
      [system('b\n\nc'), user, system('d'), system('e')],
    ],
    [
      [system('a'), image, system('d')],
      [system('a'), image, system('d')],
    ],
    [
      [system('a'), system('b'), image, user],
      [system('a\n\nb'), image, user],
    ],
  ] as const)
    t.same(withOneSystem(structuredClone(messages)), joined);
  t.end();
});
