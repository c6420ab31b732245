/** Tools in namespaces and searches, as coding agents offer them, at an upstream that speaks chat. */
import t from 'tap';
import { RESPONSES_DIALECT } from '#src/doors/responses/responses-dialect.js';

const TRANSLATOR = RESPONSES_DIALECT.translator!;
const fn = (name: string): object => ({ type: 'function', name, parameters: { type: 'object' } });
const SPACE = { type: 'namespace', name: 'agents', tools: [fn('close'), { type: 'custom', name: 'say' }] };
const SEARCH = { type: 'web_search', external_web_access: true };

const bodyOf = (more: object): Record<string, unknown> => ({ model: 'm', input: 'Hello', ...more });
const toolsOf = (more: object): unknown => TRANSLATOR.toChat(bodyOf(more)).tools;

void t.test('tools of a namespace are offered by both names', (t) => {
  t.same(toolsOf({ tools: [fn('close'), SPACE] }), [
    { type: 'function', function: { name: 'close', parameters: { type: 'object' } } },
    { type: 'function', function: { name: 'agents__close', parameters: { type: 'object' } } },
    { type: 'custom', custom: { name: 'agents__say' } },
  ]);
  for (const [tools, path] of [
    [[{ ...SPACE, tools: [3] }], 'tools[0].tools[0] must be an object'],
    [[{ ...SPACE, tools: [{ type: 'function' }] }], 'tools[0].tools[0].name must be a string'],
    [[{ ...SPACE, tools: [SEARCH] }], 'tools[0].tools[0].type must be function or custom'],
    [[3], 'tools[0] must be an object'],
    [[SPACE, fn('agents__close')], 'tools[1].name another tool has the name agents__close too'],
    [[SPACE, SPACE], 'tools[1].tools[0].name another tool has the name agents__close too'],
    [
      [SPACE, { ...SPACE, name: '', tools: [fn('agents__say')] }],
      'tools[1].tools[0].name another tool has the name agents__say too',
    ],
  ] as const)
    t.throws(() => toolsOf({ tools }), new RegExp(path.replaceAll(/[[\].]/g, '\\$&')));
  t.end();
});

void t.test('a call has both names again, and goes back with them', (t) => {
  const body = bodyOf({ tools: [fn('close'), SPACE] });
  const call = { requestId: 'r', model: 'm', stream: false, body, nowMs: 0 };
  const calls = [
    { id: 'c1', type: 'function', function: { name: 'agents__close', arguments: '{}' } },
    { id: 'c2', type: 'function', function: { name: 'close', arguments: '{}' } },
  ];
  const answer = {
    choices: [{ message: { content: null, tool_calls: calls }, finish_reason: 'tool_calls' }],
  };
  const { output } = JSON.parse(TRANSLATOR.fromChat(answer, call)) as { output: Record<string, unknown>[] };
  t.match(output[0], { type: 'function_call', name: 'close', namespace: 'agents' });
  t.match(output[1], { type: 'function_call', name: 'close' }, 'the same name without a namespace');
  t.notOk('namespace' in output[1]!);
  const { messages } = TRANSLATOR.toChat(bodyOf({ input: output })) as { messages: unknown };
  t.match(messages, [{ role: 'assistant', tool_calls: calls }]);
  t.end();
});

void t.test('a long name is shortened, and a call of it has both names again', (t) => {
  const namespace = `mcp__${'n'.repeat(40)}__`;
  const names = ['close', 'x'.repeat(80), `${'x'.repeat(79)}y`];
  const exact = 'e'.repeat(64 - namespace.length - '__'.length);
  const tools = [
    { type: 'namespace', name: namespace, tools: [...names, exact].map(fn) },
    fn('p'.repeat(70)),
  ];
  const flat = (toolsOf({ tools }) as { function: { name: string } }[]).map((tool) => tool.function.name);
  t.equal(new Set(flat).size, 5);
  t.equal(flat[0], `${namespace}__close`);
  t.equal(flat[3], `${namespace}__${exact}`);
  t.equal(flat[4], 'p'.repeat(70), 'a name without a namespace is the own affair of the caller');
  for (const name of flat.slice(0, 4)) t.match(name, /^mcp__n{40}__[\w-]{1,17}$/);

  const call = { requestId: 'r', model: 'm', stream: false, body: bodyOf({ tools }), nowMs: 0 };
  const calls = flat.map((name, index) => ({
    id: `c${index}`,
    type: 'function',
    function: { name, arguments: '{}' },
  }));
  const answer = {
    choices: [{ message: { content: null, tool_calls: calls }, finish_reason: 'tool_calls' }],
  };
  const { output } = JSON.parse(TRANSLATOR.fromChat(answer, call)) as { output: Record<string, unknown>[] };
  t.match(
    output,
    [...names, exact].map((name) => ({ type: 'function_call', name, namespace })),
  );
  const { messages } = TRANSLATOR.toChat(bodyOf({ input: output })) as { messages: unknown };
  t.match(messages, [{ role: 'assistant', tool_calls: calls }], 'in a later turn, without the tools');
  t.throws(() => toolsOf({ tools: [...tools, fn(flat[1]!)] }), /another tool has the name/);
  t.end();
});

void t.test('a search that the model need not make is left out beside other tools', (t) => {
  const only = [{ type: 'function', function: { name: 'other', parameters: { type: 'object' } } }];
  for (const choice of [{}, { tool_choice: 'auto' }, { tool_choice: 'none' }])
    t.same(toolsOf({ tools: [SEARCH, fn('other')], ...choice }), only);
  const refused = /tools\[0\]\.type must be function or custom/;
  t.throws(() => toolsOf({ tools: [SEARCH] }), refused, 'alone');
  t.throws(() => toolsOf({ tools: [SEARCH, fn('other')], tool_choice: 'required' }), refused);
  t.throws(() => toolsOf({ tools: [{ type: 'file_search' }, fn('other')] }), refused);
  t.end();
});
