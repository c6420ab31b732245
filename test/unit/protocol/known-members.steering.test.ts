/** Members by which a caller would get another call than the one that is admitted and held. */
import t, { type Test } from 'tap';
import { STEERING_MEMBERS } from '#src/core/routing-members.js';
import { foldedName, MESSAGE, PART, REQUEST, STREAM_OPTIONS } from '#src/protocol/known-members.js';
import { readChatBytes, readLargeChatBytes } from '#src/protocol/request-bytes.js';
import { steeringOf } from '#src/protocol/known-members.js';

const OUTPUT_MEMBERS = [
  ['n_predict', 'max_tokens'],
  ['n_cmpl', 'n'],
  ['best_of', 'n'],
] as const;
const ALL = [...STEERING_MEMBERS, ...OUTPUT_MEMBERS.map(([name]) => name)];
const VALUES = ['["a"]', '{"order":["a"]}', '"a"', '3', 'true', '0', '""', '[]', '{}', '-1'];

const body = (members: string): string =>
  `{"model":"m",${members}"messages":[{"role":"user","content":"hello"}],"max_tokens":1}`;

/** What is read of a body, as a small one and as a large one in pieces. */
function read(t: Test, text: string): ReturnType<typeof readChatBytes> {
  const bytes = Buffer.from(text);
  const small = readChatBytes(bytes);
  const large = readLargeChatBytes([bytes.subarray(0, 30), bytes.subarray(30)]);
  t.equal(large.ok, small.ok);
  if (!small.ok && !large.ok) t.same(large.error, small.error);
  if (small.ok && large.ok) t.same(large.call.routingMembers, small.call.routingMembers);
  return small;
}

const refusal = (t: Test, text: string): string | undefined => {
  const result = read(t, text);
  return result.ok ? undefined : result.error.message;
};
const routing = (t: Test, text: string): readonly string[] | undefined => {
  const result = read(t, text);
  return result.ok ? result.call.routingMembers : undefined;
};

void t.test('a member that routes is named, whatever its value, and goes on byte for byte', (t) => {
  for (const name of STEERING_MEMBERS) {
    for (const value of VALUES) {
      const text = body(`"${name}":${value},`);
      t.same(routing(t, text), [name], `${name}: ${value}`);
      const result = readChatBytes(Buffer.from(text));
      t.equal(result.ok && result.call.body, text);
    }
  }
  t.same(routing(t, body('"models":["a"],"seed":1,"api_key":"x","x":2,')), ['models', 'api_key']);
  t.end();
});

void t.test('a template among the arguments of a template', (t) => {
  const given = ['"chat_template_kwargs":{"chat_template":"x","a":1},', '"chat_template":"x",'];
  given.push('"chat_template_kwargs":{"\\u0063hat_template":"x"},');
  for (const members of given) t.same(routing(t, body(members)), ['chat_template'], members);
  for (const value of ['{"enable_thinking":false}', '{"chat_template":null}', '{}', 'null', '"x"'])
    t.same(routing(t, body(`"chat_template_kwargs":${value},`)), [], value);
  t.end();
});

void t.test('a tool that the provider runs is named', (t) => {
  const functions = '{"type":"function","function":{"name":"f"}},{"type": "custom" ,"custom":{"name":"c"}}';
  const plain = [
    '[{"function":{"name":"f"}}]',
    '[{"name":"f","parameters":{}}]',
    '[{"type":null,"name":"f"}]',
  ];
  for (const tools of ['[]', `[${functions}]`, ...plain, '[1]', '{}', 'null'])
    t.same(routing(t, body(`"tools":${tools},`)), [], tools);
  for (const tool of ['{"googleSearch":{}}', '{"urlContext":{},"type":null}'])
    t.same(routing(t, body(`"tools":[${functions},${tool}],`)), ['hosted_tools'], tool);
  for (const type of [
    'browser_search',
    'openrouter:web_search',
    'builtin_function',
    'mcp',
    '\\u0066unction',
    '',
  ])
    t.same(routing(t, body(`"tools":[${functions},{"type":"${type}"},{}],`)), ['hosted_tools'], type);
  t.same(routing(t, body('"tools":[{"type":"a"},{"type":"b"}],"models":[],')), ['hosted_tools', 'models']);
  t.match(refusal(t, body('"tools":[{"type":"a","Type":"b"}],')), /tools\[0\].Type must be written as type/);
  t.end();
});

void t.test('a tier of service passes if it is not dearer than the usual one', (t) => {
  for (const tier of ['auto', 'default', 'flex', 'on_demand', 'standard_only']) {
    t.same(routing(t, body(`"service_tier": "${tier}" ,`)), [], tier);
  }
  for (const tier of ['priority', 'scale', 'performance', 'AUTO', 'auto ', '\\u0061uto', 'autop']) {
    t.same(routing(t, body(`"service_tier":"${tier}",`)), ['service_tier'], tier);
  }
  t.end();
});

void t.test('one that makes more output is refused with the name to use', (t) => {
  for (const [name, instead] of OUTPUT_MEMBERS) {
    for (const value of VALUES) {
      t.equal(refusal(t, body(`"${name}":${value},`)), `${name} must not be given, use ${instead}`);
    }
  }
  t.end();
});

void t.test('null and false ask for nothing', (t) => {
  for (const name of ALL) {
    for (const value of ['null', 'false', ' null '])
      t.same(routing(t, body(`"${name}":${value},`)), [], name);
  }
  // What is not known has nothing to do with the known member after it.
  t.same(routing(t, body('"models":null,"seed":1,"x":[2],')), []);
  t.end();
});

void t.test('another spelling is no way round', (t) => {
  for (const name of ALL) {
    const capital = name[0]!.toUpperCase() + name.slice(1);
    for (const written of [
      name.toUpperCase(),
      capital,
      name.replace('s', 'ſ'),
      name.replace('k', '\u212a'),
    ]) {
      if (written === name) continue;
      t.equal(refusal(t, body(`"${written}":["a"],`)), `${written} must be written as ${name}`);
    }
    const escaped = `\\u00${name.charCodeAt(0).toString(16)}${name.slice(1)}`;
    t.not(refusal(t, body(`"${escaped}":["a"],`)) ?? routing(t, body(`"${escaped}":["a"],`))?.[0], undefined);
    t.match(refusal(t, body(`"${name}":null,"${name}":["a"],`)), /must be given once/);
  }
  t.end();
});

void t.test('within other members, and as a part of a name, they are nothing', (t) => {
  for (const name of ALL) {
    const inner = `{"${name}":["a"]}`;
    for (const member of [
      `"metadata":${inner},`,
      `"extra_body":${inner},`,
      `"tools":[${inner}],`,
      `"${name}_":1,`,
    ]) {
      // It is one itself, as what else than `google` is within. A tool that defines nothing is hosted.
      const expected = member.startsWith('"extra_body"')
        ? ['extra_body']
        : member.startsWith('"tools"')
          ? ['hosted_tools']
          : [];
      t.same(routing(t, body(member)), expected, member);
    }
    const message = `{"model":"m","messages":[{"role":"user","content":"x","${name}":["a"]}]}`;
    t.same(routing(t, message), []);
  }
  t.end();
});

void t.test('they are not among the names that are read, and each is found', (t) => {
  const known = new Set([REQUEST, MESSAGE, PART, STREAM_OPTIONS].flatMap(({ names }) => names));
  for (const name of ALL) {
    // Read for the members within.
    t.equal(known.has(name), name === 'extra_body', name);
    t.equal(steeringOf(foldedName(name))?.name, name);
  }
  t.equal(new Set(ALL.map(foldedName)).size, ALL.length);
  t.end();
});
