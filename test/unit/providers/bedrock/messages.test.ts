/** Messages of a chat completion as turns of Converse: merging, media, calls and results, thinking, marks. */
import t from 'tap';
import { bodyOf } from '#src/providers/bedrock/request.js';
import { FieldError } from '#src/providers/provider.js';
import { bedrockCall, CLAUDE, type GivenCall } from '../../../support/bedrock.js';

type Members = Record<string, unknown>;
const NOVA = 'us.amazon.nova-lite-v1:0';
const TOOLS = [{ type: 'function', function: { name: 'f' } }];

interface Written {
  readonly messages: { role: string; content: Members[] }[];
  readonly system?: Members[];
}

function written(messages: unknown[], given: GivenCall = {}, more: Members = {}): Written {
  return JSON.parse(bodyOf(bedrockCall({ messages, tools: TOOLS, ...more }, given))) as Written;
}

const content = (parts: unknown, given?: GivenCall): unknown =>
  written([{ role: 'user', content: parts }], given).messages[0]!.content;

/** The member that the request is refused for. */
function refusal(messages: unknown[], more: Members = {}): string {
  try {
    written(messages, {}, more);
    return 'none';
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    return error.field;
  }
}

void t.test('system texts are apart, turns alternate, blank texts are left out', (t) => {
  const { messages, system } = written([
    { role: 'system', content: 'A' },
    { role: 'developer', content: [{ type: 'text', text: 'B' }] },
    { role: 'user', content: 'one' },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'two' },
        { type: 'text', text: ' \n' },
      ],
    },
    { role: 'assistant', content: '' },
    { role: 'assistant', content: 'three' },
    { role: 'assistant', content: [{ type: 'refusal', refusal: 'no' }] },
    { role: 'assistant', content: null, refusal: 'never' },
    { role: 'system', content: 'C' },
    { role: 'user', content: 'four' },
  ]);
  t.same(system, [{ text: 'A' }, { text: 'B' }]);
  t.same(messages, [
    { role: 'user', content: [{ text: 'one' }, { text: 'two' }] },
    { role: 'assistant', content: [{ text: 'three' }, { text: 'no' }, { text: 'never' }] },
    {
      role: 'user',
      content: [{ text: '<system-reminder>\nC\n</system-reminder>' }, { text: 'four' }],
    },
  ]);
  t.same(written([{ role: 'assistant', content: 'so \n' }]).messages, [
    { role: 'user', content: [{ text: 'Please continue.' }] },
    { role: 'assistant', content: [{ text: 'so' }] },
  ]);
  t.equal(refusal([{ role: 'narrator', content: 'x' }]), 'messages[0].role');
  t.equal(refusal([{ role: 'user', content: [{ type: 'hologram' }] }]), 'messages[0].content[0].type');
  t.equal(refusal([{ role: 'user', content: [{ type: 'text' }] }]), 'messages[0].content[0].text');
  t.equal(refusal([{ role: 'user', content: 5 }]), 'messages[0].content');
  t.equal(refusal([{ role: 'user', content: ' ' }]), 'messages[0].content');
  t.equal(refusal([{ role: 'system', content: 'x' }]), 'messages');
  t.end();
});

void t.test('images, videos, sounds and documents', (t) => {
  const image = (url: string): Members => ({ type: 'image_url', image_url: { url } });
  t.same(content([image('data:image/png;base64,AAAA'), image('data:image/jpg;base64,BBBB')]), [
    { image: { format: 'png', source: { bytes: 'AAAA' } } },
    { image: { format: 'jpeg', source: { bytes: 'BBBB' } } },
  ]);
  t.same(content([image('s3://bucket/a/b.webp')]), [
    { image: { format: 'webp', source: { s3Location: { uri: 's3://bucket/a/b.webp' } } } },
  ]);
  t.same(content([{ type: 'video_url', video_url: { url: 'data:video/quicktime;base64,CCCC' } }]), [
    { video: { format: 'mov', source: { bytes: 'CCCC' } } },
  ]);
  t.same(content([{ type: 'input_audio', input_audio: { data: 'DDDD', format: 'wav' } }]), [
    { audio: { format: 'wav', source: { bytes: 'DDDD' } } },
  ]);
  const file = (file_data: string, filename?: string): Members => ({
    type: 'file',
    file: { file_data, ...(filename !== undefined && { filename }) },
  });
  t.same(
    content([
      file('data:application/pdf;base64,EEEE', 'Report, final_v2 (1).pdf'),
      file('data:application/pdf;base64,EEEE', 'Report, final_v2 (1).pdf'),
      file('data:text/plain;charset=utf-8;base64,FFFF'),
      file('data:image/gif;base64,GGGG', 'x.gif'),
      { type: 'file', file: { file_id: 's3://bucket/x.docx' } },
    ]),
    [
      { text: 'Please continue.' },
      { document: { format: 'pdf', source: { bytes: 'EEEE' }, name: 'Report- final-v2 (1)' } },
      { document: { format: 'pdf', source: { bytes: 'EEEE' }, name: 'Report- final-v2 (1) 2' } },
      { document: { format: 'txt', source: { bytes: 'FFFF' }, name: 'document' } },
      { image: { format: 'gif', source: { bytes: 'GGGG' } } },
      {
        document: {
          format: 'docx',
          source: { s3Location: { uri: 's3://bucket/x.docx' } },
          name: 'document 2',
        },
      },
    ],
  );
  const at = 'messages[0].content[0]';
  const user = (part: Members): unknown[] => [{ role: 'user', content: [part] }];
  t.equal(refusal(user(image('https://example.com/a.png'))), `${at}.image_url`);
  t.equal(refusal(user(image('data:image/tiff;base64,AAAA'))), `${at}.image_url`);
  t.equal(refusal(user(image('data:image/png,AAAA'))), `${at}.image_url`);
  t.equal(refusal(user({ type: 'image_url' })), `${at}.image_url`);
  t.equal(refusal(user({ type: 'file', file: { file_id: 'file-1' } })), `${at}.file.file_id`);
  t.equal(refusal(user({ type: 'file', file: {} })), `${at}.file.file_data`);
  t.equal(refusal(user({ type: 'file', file: { file_data: null } })), `${at}.file.file_data`);
  t.equal(refusal(user({ type: 'file', file: { file_id: 5 } })), `${at}.file.file_id`);
  t.equal(
    refusal(user({ type: 'file', file: { file_data: null, file_id: 'file-1' } })),
    `${at}.file.file_id`,
  );
  t.equal(
    refusal(user({ type: 'file', file: { file_data: 'data:application/png;base64,AA' } })),
    `${at}.file.file_data`,
  );
  t.equal(refusal(user({ type: 'input_audio', input_audio: {} })), `${at}.input_audio`);
  t.end();
});

const CALL = { id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } };
const USE = { toolUse: { toolUseId: 'c1', name: 'f', input: { a: 1 } } };

void t.test('documents have a text beside them, which Converse wants', (t) => {
  const file = { type: 'file', file: { file_data: 'data:application/pdf;base64,AAAA', filename: 'a' } };
  const document = { document: { format: 'pdf', source: { bytes: 'AAAA' }, name: 'a' } };
  const placeholder = { text: 'Please continue.' };
  t.same(content([file]), [placeholder, document]);
  t.same(content([{ type: 'text', text: ' ' }, file]), [placeholder, document]);
  t.same(content([file, { type: 'text', text: 'b' }]), [document, { text: 'b' }]);
  t.same(content([{ type: 'image_url', image_url: 'data:image/png;base64,AA' }]), [
    { image: { format: 'png', source: { bytes: 'AA' } } },
  ]);
  const user = { role: 'user', content: [file] };
  t.same(written([user, { role: 'user', content: 'b' }]).messages[0]!.content, [document, { text: 'b' }]);
  // As the Messages door moves the document out of a result.
  const calls = { role: 'assistant', content: null, tool_calls: [CALL] };
  const result = { role: 'tool', tool_call_id: 'c1', content: 'read' };
  t.same(written([{ role: 'user', content: 'a' }, calls, result, user]).messages[2]!.content, [
    { toolResult: { toolUseId: 'c1', content: [{ text: 'read' }] } },
    placeholder,
    document,
  ]);
  t.end();
});

void t.test('calls and their results, several in one turn', (t) => {
  const second = { ...CALL, id: 'c2', function: { name: 'f', arguments: '' } };
  t.same(
    written([
      { role: 'user', content: 'go' },
      { role: 'assistant', content: null, tool_calls: [CALL, second] },
      { role: 'tool', tool_call_id: 'c1', content: '{"r":1}' },
      {
        role: 'tool',
        tool_call_id: 'c2',
        is_error: true,
        content: [
          { type: 'text', text: 'broke' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
        ],
      },
      { role: 'user', content: 'and?' },
    ]).messages.slice(1),
    [
      { role: 'assistant', content: [USE, { toolUse: { toolUseId: 'c2', name: 'f', input: {} } }] },
      {
        role: 'user',
        content: [
          { toolResult: { toolUseId: 'c1', content: [{ text: '{"r":1}' }] } },
          {
            toolResult: {
              toolUseId: 'c2',
              content: [{ text: 'broke' }, { image: { format: 'png', source: { bytes: 'AAAA' } } }],
              status: 'error',
            },
          },
          { text: 'and?' },
        ],
      },
    ],
  );
  const called = (call: Members): unknown[] => [{ role: 'assistant', tool_calls: [call] }];
  t.equal(refusal(called({ ...CALL, id: 5 })), 'messages[0].tool_calls[0].id');
  t.equal(refusal(called({ ...CALL, function: {} })), 'messages[0].tool_calls[0].function.name');
  for (const text of ['{', '[]', '5', 7]) {
    const bad = { ...CALL, function: { name: 'f', arguments: text } };
    t.equal(refusal(called(bad)), 'messages[0].tool_calls[0].function.arguments');
  }
  t.equal(refusal([{ role: 'tool', content: 'x' }]), 'messages[0].tool_call_id');
  t.equal(
    refusal([{ role: 'assistant', content: null, function_call: { name: 'f', arguments: '{}' } }]),
    'messages[0].function_call',
  );
  t.end();
});

void t.test('results are before what else the user says, with ids of any provider', (t) => {
  const call = { ...CALL, id: 'call:1/x' };
  const said = written([
    { role: 'user', content: 'go' },
    { role: 'assistant', tool_calls: [call, CALL] },
    { role: 'system', content: 'S' },
    { role: 'tool', tool_call_id: 'call:1/x', content: 'r', cache_control: { type: 'ephemeral' } },
    { role: 'tool', tool_call_id: 'c1', content: 'r' },
  ]).messages;
  t.match(said[1]!.content[0], { toolUse: { toolUseId: 'call_1_x' } });
  t.same(
    said[2]!.content.map((block) => Object.keys(block)[0]),
    ['toolResult', 'cachePoint', 'toolResult', 'text'],
  );
  t.match(said[2]!.content[0], { toolResult: { toolUseId: 'call_1_x' } });
  const long = 'x'.repeat(65);
  const turn = (id: string): Members[] => [
    { role: 'assistant', tool_calls: [{ ...CALL, id }] },
    { role: 'tool', tool_call_id: id, content: 'r' },
  ];
  const repeated = written([{ role: 'user', content: 'go' }, ...[long, 'c', 'c', ''].flatMap(turn)]);
  const ids = (kind: string): unknown[] =>
    repeated.messages.flatMap(({ content: blocks }) =>
      blocks.flatMap((block) => (block[kind] as Members | undefined)?.toolUseId ?? []),
    );
  t.match(ids('toolUse'), [/^[\w-]{43}$/, 'c', 'c_2', 'call']);
  t.same(ids('toolResult'), ids('toolUse'));
  t.end();
});

void t.test('what the model has made of images and sound is not left out in silence', (t) => {
  const made = (more: Members): unknown[] => [
    { role: 'user', content: 'go' },
    { role: 'assistant', content: 'here', ...more },
    { role: 'user', content: 'on' },
  ];
  const images = [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }];
  t.equal(refusal(made({ images })), 'messages[1].images');
  t.equal(refusal(made({ audio: { id: 'x' } })), 'messages[1].audio');
  t.equal(refusal(made({ images: [], audio: null })), 'none');
  const dropped = written(made({ images }), { settings: { dropUnsupported: true } });
  t.same(dropped.messages[1]!.content, [{ text: 'here' }]);
  t.end();
});

void t.test('calls of before want their tools', (t) => {
  const messages = [
    { role: 'user', content: 'go' },
    { role: 'assistant', tool_calls: [CALL] },
    { role: 'tool', tool_call_id: 'c1', content: '' },
  ];
  t.equal(refusal(messages, { tools: null }), 'tools');
  t.equal(refusal(messages, { tool_choice: 'none' }), 'tool_choice');
  const dropped = written(messages, { settings: { dropUnsupported: true } }, { tools: null });
  t.match(dropped, { toolConfig: { tools: [{ toolSpec: { name: 'f' } }] } });
  t.same(dropped.messages[2]!.content, [{ toolResult: { toolUseId: 'c1', content: [{ text: '' }] } }]);
  t.end();
});

void t.test('thinking goes back as it was signed', (t) => {
  const turn = {
    role: 'assistant',
    content: 'text',
    reasoning_content: 'unsigned',
    thinking_blocks: [
      { type: 'thinking', thinking: 'hm', signature: 'c2ln' },
      { type: 'redacted_thinking', data: 'EpYC' },
      { type: 'thinking', thinking: 'not signed' },
    ],
    tool_calls: [CALL],
  };
  const messages = [
    { role: 'user', content: 'go' },
    turn,
    { role: 'tool', tool_call_id: 'c1', content: 'r' },
  ];
  t.same(written(messages).messages[1]!.content, [
    { reasoningContent: { reasoningText: { text: 'hm', signature: 'c2ln' } } },
    { reasoningContent: { redactedContent: Buffer.from('EpYC').toString('base64') } },
    { text: 'text' },
    USE,
  ]);
  // As a client has it that joined a stream member by member.
  const ended = { type: 'thinking', thinking: '', signature: 'c2ln' };
  const joined = (thinking_blocks: Members[]): unknown =>
    written([messages[0], { ...turn, reasoning_content: 'hm', thinking_blocks }]).messages[1]!.content[0];
  t.same(joined([ended]), { reasoningContent: { reasoningText: { text: 'hm', signature: 'c2ln' } } });
  t.same(
    joined([ended, { ...ended, signature: 'b3Ro' }]),
    { text: 'text' },
    'whose text it is, nobody knows',
  );
  // Claude refuses to begin to think after a call that it made without.
  const effort = { reasoning_effort: 'low' };
  t.match(written(messages, {}, effort), { additionalModelRequestFields: { thinking: {} } });
  const unthought = [messages[0], { role: 'assistant', tool_calls: [CALL] }, messages[2]];
  t.notMatch(written(unthought, {}, effort), { additionalModelRequestFields: {} });
  t.match(written([...unthought, { role: 'user', content: 'x' }], {}, effort), {
    additionalModelRequestFields: { thinking: {} },
  });
  t.end();
});

void t.test('marks for the cache', (t) => {
  const mark = { cache_control: { type: 'ephemeral' } };
  const hour = { cache_control: { type: 'ephemeral', ttl: '1h' } };
  const point = { cachePoint: { type: 'default' } };
  const hourPoint = { cachePoint: { type: 'default', ttl: '1h' } };
  const messages = [
    { role: 'system', content: [{ type: 'text', text: 'A', ...hour }] },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'one', ...mark },
        { type: 'text', text: 'two' },
      ],
    },
    { role: 'assistant', content: 'three', tool_calls: [CALL], ...mark },
    { role: 'tool', tool_call_id: 'c1', content: [{ type: 'text', text: 'r', ...mark }] },
  ];
  t.same(
    [written(messages).system, ...written(messages).messages.map((turn) => turn.content)],
    [
      [{ text: 'A' }, hourPoint],
      [{ text: 'one' }, point, { text: 'two' }],
      [{ text: 'three' }, USE, point],
      [{ toolResult: { toolUseId: 'c1', content: [{ text: 'r' }] } }, point],
    ],
  );
  t.same(written(messages, { model: NOVA }).system, [{ text: 'A' }, point], 'without a lifetime');
  t.same(written(messages, { model: 'meta.llama3-1-8b-instruct-v1:0' }).system, [{ text: 'A' }]);
  t.same(written([{ role: 'user', content: 'x' }], { model: CLAUDE }, mark).messages[0]!.content, [
    { text: 'x' },
    point,
  ]);
  t.end();
});

void t.test('the mark of a blank text is that of what is before it', (t) => {
  const point = { cachePoint: { type: 'default' } };
  const blank = { type: 'text', text: ' ', cache_control: { type: 'ephemeral' } };
  const one = { type: 'text', text: 'one' };
  const ask = { role: 'user', content: 'x' };
  t.same(content([one, blank, blank]), [{ text: 'one' }, point]);
  t.same(content([blank, one]), [{ text: 'one' }], 'no turn begins with a cache point');
  t.equal(refusal([{ role: 'user', content: [blank] }]), 'messages[0].content');
  t.notMatch(written([{ role: 'system', content: [blank] }, ask]), { system: [] });
  t.same(
    written([
      ask,
      { role: 'assistant', tool_calls: [CALL] },
      { role: 'tool', tool_call_id: 'c1', content: [blank] },
    ]).messages[2]!.content,
    [{ toolResult: { toolUseId: 'c1', content: [{ text: '' }] } }, point],
    'a result without text is one that can be marked',
  );
  t.end();
});

void t.test('any number of documents may have one name, in bounded time', (t) => {
  const file = (filename?: string): Members => ({
    type: 'file',
    file: { filename, file_data: 'data:a/pdf;base64,' },
  });
  const names = (files: readonly Members[]): unknown[] =>
    (content(files) as { document?: { name: string } }[]).flatMap(({ document }) => document?.name ?? []);
  t.same(names(['a.pdf', 'a 2.pdf', 'a.pdf', 'a', 'a 2', 'b'].map(file)), [
    ...['a', 'a 2', 'a 3', 'a 4', 'a 2 2', 'b'],
  ]);
  const cut = 'a'.repeat(99);
  t.same(names([file(`${cut} b.pdf`), file(`${cut} c.pdf`)]), [cut, `${cut} 2`], 'a cut in front of a space');
  const startMs = performance.now();
  const many = names(Array.from({ length: 50_000 }, () => file()));
  t.ok(performance.now() - startMs < 5_000);
  t.equal(new Set(many).size, 50_000);
  t.same(many.slice(0, 3), ['document', 'document 2', 'document 3']);
  t.end();
});
