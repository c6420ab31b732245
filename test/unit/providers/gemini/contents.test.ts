/** Messages as Gemini's turns: roles, calls of functions and their results, signatures, media. */
import t from 'tap';
import { contentsOf } from '#src/providers/gemini/contents.js';
import { FieldError } from '#src/providers/provider.js';

const user = (content: unknown): object => ({ role: 'user', content });
const system = (content: unknown): object => ({ role: 'system', content });
const assistant = (content: unknown, more: object = {}): object => ({ role: 'assistant', content, ...more });
const result = (id: string, content: unknown): object => ({ role: 'tool', tool_call_id: id, content });
const call = (id: string, name: string, args: string, more: object = {}): object => ({
  id,
  type: 'function',
  function: { name, arguments: args },
  ...more,
});
const signed = (signature: string): object => ({
  extra_content: { google: { thought_signature: signature } },
});
const turn = (role: string, ...parts: object[]): object => ({ role, parts });
const text = (value: string): object => ({ text: value });
const PNG = 'data:image/png;base64,iVBORw0KGgo=';
const inline = (mimeType: string, data: string): object => ({ inlineData: { mimeType, data } });
const byAddress = (fileUri: string, mimeType?: string): object => ({
  fileData: { ...(mimeType !== undefined && { mimeType }), fileUri },
});

const TURNS: [name: string, messages: object[], system: object[], contents: object[]][] = [
  [
    'instructions stand outside of the turns',
    [system('A'), user('1'), { role: 'developer', content: [{ type: 'text', text: 'B' }] }, user('2')],
    [text('A'), text('B')],
    [turn('user', text('1'), text('2'))],
  ],
  ['instructions alone are asked', [system('A')], [], [turn('user', text('A'))]],
  [
    'turns',
    [user('1'), assistant('2'), assistant('3'), user('4')],
    [],
    [turn('user', text('1')), turn('model', text('2'), text('3')), turn('user', text('4'))],
  ],
  [
    'a turn of the user goes before a first one of the model',
    [system('A'), user(''), assistant('1'), user('2')],
    [text('A')],
    [turn('user', text('Please continue.')), turn('model', text('1')), turn('user', text('2'))],
  ],
  ['empty texts are left out', [user(''), assistant(''), user('x')], [], [turn('user', text('x'))]],
  [
    'a refusal is what the model said',
    [user('1'), assistant(null, { refusal: 'No.' }), assistant([{ type: 'refusal', refusal: 'Never.' }])],
    [],
    [turn('user', text('1')), turn('model', text('No.'), text('Never.'))],
  ],
  [
    'results of calls with one id, as of a server that gives none, are of the calls in their order',
    [
      user('1'),
      assistant(null, { tool_calls: [call('', 'f', '{}'), call('', 'g', '{}')] }),
      result('', 'of f'),
      result('', 'of g'),
      assistant(null, { tool_calls: [call('', 'h', '{}')] }),
      result('', 'of h'),
    ],
    [],
    [
      turn('user', text('1')),
      turn('model', { functionCall: { name: 'f', args: {} } }, { functionCall: { name: 'g', args: {} } }),
      turn(
        'user',
        { functionResponse: { name: 'f', response: { result: 'of f' } } },
        { functionResponse: { name: 'g', response: { result: 'of g' } } },
      ),
      turn('model', { functionCall: { name: 'h', args: {} } }),
      turn('user', { functionResponse: { name: 'h', response: { result: 'of h' } } }),
    ],
  ],
  [
    'thoughts are left out',
    [
      user('1'),
      assistant('2', {
        reasoning_content: 'hm',
        thinking_blocks: [{ type: 'thinking', thinking: 'hm', signature: 'of another model' }],
      }),
    ],
    [],
    [turn('user', text('1')), turn('model', text('2'))],
  ],
  [
    'the signature of a text goes with its last part',
    [
      user('1'),
      assistant(
        [
          { type: 'text', text: '2' },
          { type: 'text', text: '3' },
        ],
        signed('c2ln'),
      ),
    ],
    [],
    [turn('user', text('1')), turn('model', text('2'), { text: '3', thoughtSignature: 'c2ln' })],
  ],
];

for (const [name, messages, instruction, contents] of TURNS)
  void t.test(name, (t) => {
    t.strictSame(contentsOf(messages, false), { system: instruction, contents });
    t.end();
  });

const conversation = [
  user('weather?'),
  assistant('I look.', {
    tool_calls: [call('c1', 'weather', '{"city":"Rome"}'), call('c2', 'time', '')],
  }),
  result('c1', '{"degrees":21}'),
  result('c2', 'noon'),
  user('thanks'),
];

void t.test('results follow their calls, whatever was said in between', (t) => {
  const calls = (...ids: string[]): object =>
    assistant(null, { tool_calls: ids.map((id) => call(id, 'f', '{}')) });
  const called = (count: number): object =>
    turn('model', ...Array.from({ length: count }, () => ({ functionCall: { name: 'f', args: {} } })));
  const given = (...values: string[]): object =>
    turn(
      'user',
      ...values.map((value) => ({ functionResponse: { name: 'f', response: { result: value } } })),
    );
  for (const [name, messages, contents] of [
    [
      'before the result',
      [user('1'), calls('a'), user('2'), result('a', 'x'), user('3')],
      [turn('user', text('1')), called(1), given('x'), turn('user', text('2'), text('3'))],
    ],
    [
      'between the results',
      [user('1'), calls('a', 'b'), result('a', 'x'), user('2'), result('b', 'y')],
      [turn('user', text('1')), called(2), given('x', 'y'), turn('user', text('2'))],
    ],
    [
      'around the results',
      [user('1'), calls('a', 'b'), user('2'), result('a', 'x'), user('3'), result('b', 'y')],
      [turn('user', text('1')), called(2), given('x', 'y'), turn('user', text('2'), text('3'))],
    ],
    [
      'of the system',
      [user('1'), calls('a'), system('2'), result('a', 'x')],
      [turn('user', text('1')), called(1), given('x')],
    ],
    [
      'two rounds',
      [user('1'), calls('a'), result('a', 'x'), calls('b'), user('2'), result('b', 'y')],
      [turn('user', text('1')), called(1), given('x'), called(1), given('y'), turn('user', text('2'))],
    ],
    [
      'a function without a call',
      [user('1'), { role: 'function', name: 'f', content: 'x' }],
      [turn('user', text('1')), given('x')],
    ],
  ] as const)
    t.strictSame(contentsOf(messages, false).contents, contents, name);
  t.end();
});

void t.test('calls and results before Gemini 3', (t) => {
  t.strictSame(contentsOf(conversation, false).contents, [
    turn('user', text('weather?')),
    turn(
      'model',
      text('I look.'),
      { functionCall: { name: 'weather', args: { city: 'Rome' } } },
      { functionCall: { name: 'time', args: {} } },
    ),
    turn(
      'user',
      { functionResponse: { name: 'weather', response: { degrees: 21 } } },
      { functionResponse: { name: 'time', response: { result: 'noon' } } },
    ),
    turn('user', text('thanks')),
  ]);
  t.end();
});

void t.test('calls and results since Gemini 3 have ids, and the first a signature', (t) => {
  t.strictSame(contentsOf(conversation, true).contents, [
    turn('user', text('weather?')),
    turn(
      'model',
      text('I look.'),
      {
        functionCall: { id: 'c1', name: 'weather', args: { city: 'Rome' } },
        thoughtSignature: 'skip_thought_signature_validator',
      },
      { functionCall: { id: 'c2', name: 'time', args: {} } },
    ),
    turn(
      'user',
      { functionResponse: { id: 'c1', name: 'weather', response: { degrees: 21 } } },
      { functionResponse: { id: 'c2', name: 'time', response: { result: 'noon' } } },
    ),
    turn('user', text('thanks')),
  ]);
  t.end();
});

void t.test('a conversation that begins with a call', (t) => {
  for (const isGemini3 of [false, true]) {
    const { contents } = contentsOf(conversation.slice(1), isGemini3);
    t.strictSame(contents[0], turn('user', text('Please continue.')));
    t.strictSame(contents.slice(1), contentsOf(conversation, isGemini3).contents.slice(1));
  }
  t.end();
});

void t.test('a signature that came goes back', (t) => {
  for (const isGemini3 of [false, true]) {
    const { contents } = contentsOf(
      [user('1'), assistant(null, { tool_calls: [call('c', 'f', '{}', signed('c2ln'))] }), result('c', '')],
      isGemini3,
    );
    t.match(contents[1], { parts: [{ functionCall: { name: 'f' }, thoughtSignature: 'c2ln' }] });
  }
  t.end();
});

void t.test('an image that the model made', (t) => {
  const made = { type: 'image_url', image_url: { url: PNG }, index: 0 };
  const messages = [
    user('draw'),
    assistant('Here.', { images: [{ ...made, ...signed('c2ln') }, made], ...signed('dGV4dA') }),
  ];
  const image = inline('image/png', 'iVBORw0KGgo=');
  t.strictSame(
    contentsOf(messages, true).contents[1],
    turn(
      'model',
      { text: 'Here.', thoughtSignature: 'dGV4dA' },
      { ...image, thoughtSignature: 'c2ln' },
      image,
    ),
  );
  t.end();
});

void t.test('a function that is called in the older way', (t) => {
  const messages = [
    user('1'),
    assistant(null, { function_call: { name: 'f', arguments: '{"a":1}' } }),
    { role: 'function', name: 'f', content: '[1,2]' },
  ];
  t.strictSame(contentsOf(messages, false).contents.slice(1), [
    turn('model', { functionCall: { name: 'f', args: { a: 1 } } }),
    turn('user', { functionResponse: { name: 'f', response: { result: '[1,2]' } } }),
  ]);
  t.end();
});

void t.test('an image that a function returned', (t) => {
  const messages = [
    user('1'),
    assistant(null, { tool_calls: [call('c', 'f', '{}')] }),
    result('c', [
      { type: 'text', text: 'here' },
      { type: 'image_url', image_url: { url: PNG } },
    ]),
  ];
  const image = inline('image/png', 'iVBORw0KGgo=');
  const response = { result: 'here' };
  t.strictSame(
    contentsOf(messages, false).contents[2],
    turn('user', { functionResponse: { name: 'f', response } }, image),
  );
  t.strictSame(
    contentsOf(messages, true).contents[2],
    turn('user', { functionResponse: { id: 'c', name: 'f', response, parts: [image] } }),
  );
  t.end();
});

const MEDIA: [name: string, part: object, written: object][] = [
  ['an image in a data URL', { image_url: { url: PNG, detail: 'low' } }, inline('image/png', 'iVBORw0KGgo=')],
  ['an image_url that is a text', { image_url: PNG }, inline('image/png', 'iVBORw0KGgo=')],
  [
    'a data URL with parameters',
    { image_url: { url: 'data:image/svg+xml;charset=utf-8;base64,PHN2Zy8+' } },
    inline('image/svg+xml', 'PHN2Zy8+'),
  ],
  [
    'an object of Cloud Storage',
    { image_url: { url: 'gs://bucket/a/photo.JPG' } },
    byAddress('gs://bucket/a/photo.JPG', 'image/jpeg'),
  ],
  [
    'an object without an extension',
    { image_url: { url: 'gs://bucket/photo', format: 'image/webp' } },
    byAddress('gs://bucket/photo', 'image/webp'),
  ],
  [
    'an address that Google reads',
    { image_url: { url: 'https://example.com/a.png?size=1' } },
    byAddress('https://example.com/a.png?size=1', 'image/png'),
  ],
  [
    'a file at Google',
    { file: { file_id: 'https://generativelanguage.googleapis.com/v1beta/files/abc' } },
    byAddress('https://generativelanguage.googleapis.com/v1beta/files/abc'),
  ],
  [
    'a video at YouTube',
    { video_url: { url: 'https://www.youtube.com/watch?v=9hE5-98ZeCg' } },
    byAddress('https://www.youtube.com/watch?v=9hE5-98ZeCg'),
  ],
  ['a video', { video_url: { url: 'gs://b/v.mp4' } }, byAddress('gs://b/v.mp4', 'video/mp4')],
  ['sound', { input_audio: { data: 'UklGRg==', format: 'wav' } }, inline('audio/wav', 'UklGRg==')],
  ['sound at an address', { audio_url: { url: 'gs://b/a.mp3' } }, byAddress('gs://b/a.mp3', 'audio/mp3')],
  [
    'a file in a data URL',
    { file: { file_data: 'data:application/pdf;base64,JVBERi0=', filename: 'a.pdf' } },
    inline('application/pdf', 'JVBERi0='),
  ],
  ['a file in base64', { file: { file_data: 'eA==', filename: 'a.csv' } }, inline('text/csv', 'eA==')],
  ['a file without a name', { file: { file_data: 'JVBERi0=' } }, inline('application/pdf', 'JVBERi0=')],
];

for (const [name, part, written] of MEDIA)
  void t.test(name, (t) => {
    const messages = [
      user([
        { type: 'text', text: 'look' },
        { type: Object.keys(part)[0], ...part },
      ]),
    ];
    t.strictSame(contentsOf(messages, false).contents, [turn('user', text('look'), written)]);
    t.end();
  });

const image = (url: unknown, more: object = {}): object =>
  user([{ type: 'image_url', image_url: { url, ...more } }]);
const WRONG: [name: string, messages: unknown[], field: string][] = [
  ['no messages', [], 'messages'],
  ['a message that is no object', [user('1'), 3], 'messages[1]'],
  ['an unknown role', [{ role: 'robot', content: '1' }], 'messages[0].role'],
  ['a content that is a number', [user(3)], 'messages[0].content'],
  ['a part that is no object', [user([3])], 'messages[0].content[0]'],
  ['a part of an unknown kind', [user([{ type: 'smell' }])], 'messages[0].content[0].type'],
  ['a text that is a number', [user([{ type: 'text', text: 3 }])], 'messages[0].content[0].text'],
  ['an image in an instruction', [system([{ type: 'image_url', image_url: PNG }])], 'messages[0].content'],
  ['an address without a scheme', [image('photo.png')], 'messages[0].content[0].image_url'],
  ['an address that Google does not read', [image('http://x/a.png')], 'messages[0].content[0].image_url'],
  ['an address of an unknown type', [image('https://x/a')], 'messages[0].content[0].image_url'],
  ['a wrong type', [image('https://x/a', { format: 'png' })], 'messages[0].content[0].image_url'],
  ['a url that is no text', [image(3)], 'messages[0].content[0].image_url.url'],
  ['a data URL without base64', [image('data:image/png,abc')], 'messages[0].content[0].image_url'],
  ['a data URL without an end', [image('data:image/png;base64')], 'messages[0].content[0].image_url'],
  [
    'sound without data',
    [user([{ type: 'input_audio', input_audio: { format: 'wav' } }])],
    'messages[0].content[0].input_audio.data',
  ],
  [
    'sound without a format',
    [user([{ type: 'input_audio', input_audio: { data: '' } }])],
    'messages[0].content[0].input_audio.format',
  ],
  ['a file without anything', [user([{ type: 'file', file: {} }])], 'messages[0].content[0].file'],
  ['a call that is no object', [assistant(null, { tool_calls: [3] })], 'messages[0].tool_calls[0]'],
  [
    'a call without a name',
    [assistant(null, { tool_calls: [{ id: 'c', function: {} }] })],
    'messages[0].tool_calls[0].function.name',
  ],
  [
    'arguments that are no object',
    [assistant(null, { tool_calls: [call('c', 'f', '[1]')] })],
    'messages[0].tool_calls[0].function.arguments',
  ],
  ['an image that is none', [assistant('', { images: [3] })], 'messages[0].images[0]'],
  ['a result of no call', [user('1'), result('c9', 'x')], 'messages[1].tool_call_id'],
  ['a result of no function', [user('1'), { role: 'function', content: 'x' }], 'messages[1].name'],
];

for (const [name, messages, field] of WRONG)
  void t.test(`wrong: ${name}`, (t) => {
    try {
      contentsOf(messages, false);
      t.fail('was written');
    } catch (error) {
      t.ok(error instanceof FieldError);
      t.equal((error as FieldError).field, field);
    }
    t.end();
  });

void t.test('a signature without text goes back if no tool was called', (t) => {
  const empty = { text: '', thoughtSignature: 's1' };
  for (const more of [{}, { tool_calls: [] }, { tool_calls: null }])
    t.strictSame(
      contentsOf([user('1'), assistant(null, { ...signed('s1'), ...more })], true).contents,
      [turn('user', text('1')), turn('model', empty)],
      JSON.stringify(more),
    );
  const old = assistant(null, { ...signed('s1'), function_call: { name: 'f', arguments: '{}' } });
  const [, called] = contentsOf([user('1'), old], true).contents;
  t.same(
    called!.parts.filter((part) => 'text' in part),
    [],
    'nor by a call of the older form',
  );
  t.end();
});
