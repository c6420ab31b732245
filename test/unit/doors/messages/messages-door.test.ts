/** The Messages API as listeners see it: what is read, what is refused and how, headers. */
import t from 'tap';
import { MESSAGES, messagesHeaderLines } from '#src/doors/messages/messages-door.js';
import { costlyMembersIn, outputTokensMin } from '#src/doors/messages/messages-rules.js';
import { REQUEST_RULES } from '#src/protocol/generated.js';
import { violationOf } from '#src/protocol/request-rules.js';

const { check, schema } = REQUEST_RULES.messages;
const VALID = { model: 'm', max_tokens: 7, messages: [{ role: 'user', content: 'hello' }] };
const read = (value: unknown, door = MESSAGES) =>
  door.read(Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)));

void t.test('a request is read and its bytes stay', (t) => {
  const text = JSON.stringify({ ...VALID, stream: true, system: 'é' });
  const result = read(text);
  if (!result.ok) throw new Error(result.error.message);
  const { call } = result;
  t.equal(call.body, text);
  t.match(call, {
    model: 'm',
    stream: true,
    outputTokensMax: 7,
    outputTokensField: 'max_tokens',
    choices: 1,
  });
  t.equal(call.body.slice(call.modelStart, call.modelEnd), '"m"');
  const large = MESSAGES.readPieces([Buffer.from(text)]);
  t.equal(large.ok && Buffer.from(large.call.largeBody!).toString(), text);
  t.end();
});

void t.test('each rule has its sentence', (t) => {
  const wrong: readonly (readonly [unknown, string])[] = [
    [{ ...VALID, max_tokens: undefined }, 'max_tokens must be an integer, got nothing'],
    [{ ...VALID, max_tokens: -1 }, 'max_tokens must not be negative, got -1'],
    [{ ...VALID, temperature: 1.5 }, 'temperature must be a number between 0 and 1, got 1.5'],
    [{ ...VALID, top_p: -1 }, 'top_p must be a number between 0 and 1, got -1'],
    [{ ...VALID, top_k: 0.5 }, 'top_k must be an integer from 0, got 0.5'],
    [{ ...VALID, stop_sequences: 'x' }, 'stop_sequences must be an array of strings, got "x"'],
    [{ ...VALID, stream: 1 }, 'stream must be true or false, got 1'],
    [{ ...VALID, metadata: [] }, 'metadata must be an object, got an array'],
    [{ ...VALID, messages: [] }, 'messages must have at least 1 item, got 0'],
    [{ ...VALID, messages: 'x' }, 'messages must be an array of messages, got "x"'],
    [
      { ...VALID, messages: [{ role: 'tool', content: '' }] },
      'messages[0].role must be one of user, assistant, system, got "tool"',
    ],
    [
      { ...VALID, messages: [{ role: 'user', content: [{}] }] },
      'messages[0].content[0].type must be a string, got nothing',
    ],
    [
      { ...VALID, messages: [{ role: 'user' }] },
      'messages[0].content must be a string or an array of blocks, got nothing',
    ],
    [{ ...VALID, system: 3 }, 'system must be a string or an array of blocks, got 3'],
    [{ ...VALID, tools: [3] }, 'tools[0] must be an object, got 3'],
    [{ ...VALID, tool_choice: 'auto' }, 'tool_choice must be an object, got "auto"'],
    [
      { ...VALID, tool_choice: { type: 'x' } },
      'tool_choice.type must be one of auto, any, tool, none, got "x"',
    ],
    [{ ...VALID, thinking: {} }, 'thinking.type must be a string, got nothing'],
    [{ ...VALID, model: '' }, 'model must be a non-empty string, got ""'],
    [[], 'the request body must be a JSON object, got an array'],
  ];
  for (const [value, message] of wrong) {
    t.notOk(check(value), message);
    t.equal(violationOf(schema, value), message);
    t.same(read(value), { ok: false, error: { code: 'invalid_parameters', message } });
  }
  t.end();
});

/** Each value once in each place of the tree, with the rest as it is. */
function* withEach(tree: unknown, values: readonly unknown[]): Generator {
  yield* values;
  if (typeof tree !== 'object' || tree === null) return;
  for (const [name, inner] of Object.entries(tree))
    for (const other of withEach(inner, values))
      yield Array.isArray(tree)
        ? tree.map((item: unknown, index) => (String(index) === name ? other : item))
        : { ...tree, [name]: other };
}

void t.test('the door judges each value in each place as the validator judges the whole tree', (t) => {
  const block = { type: 'text', text: 'x', cache_control: { type: 'ephemeral' }, source: { type: 'url' } };
  const full = {
    ...VALID,
    messages: [{ role: 'user', content: [block, { type: 'tool_result', content: [block] }] }],
    system: [block],
    tools: [{ type: 'bash_20250124', name: 'bash', input_schema: { type: 'object' } }],
    tool_choice: { type: 'tool', name: 'bash' },
    thinking: { type: 'enabled', budget_tokens: 3 },
    metadata: { user_id: 'u' },
    stop_sequences: ['x', 'é'],
    temperature: 0.5,
    top_p: 1,
    top_k: 2,
    stream: false,
    output_config: { format: { type: 'json_schema' } },
  };
  const long = 'y'.repeat(200);
  const values = [
    ...[null, true, false, 0, 7, -1, 0.25, 1.5, 12_345_678_901_234_567_000, '', 'x', 'é', '\u0000"\\', long],
    ...['user', 'assistant', 'custom', 'web_search_20250305', `bash_1${long}`, 'auto', 'enabled'],
    ...[[], [null], ['x'], [1, 2], [[]], [{}], [{ type: 'text' }], [{ type: 7 }], {}, { type: 'auto' }],
  ];
  const wrong: string[] = [];
  let taken = 0;
  for (const body of withEach(full, values)) {
    const text = JSON.stringify(body);
    const parsed: unknown = JSON.parse(text);
    const result = read(text);
    const isPlainBound = /"max_tokens":\d{1,15}[,}]/.test(text);
    if (!check(parsed)) {
      if (result.ok || result.error.message !== violationOf(schema, parsed)) wrong.push(text);
    } else if (!isPlainBound || !result.ok) {
      if (isPlainBound || result.ok) wrong.push(text);
    } else {
      const members = parsed as Omit<typeof full, 'stream'> & { readonly stream: boolean | null };
      const tools = members.tools as readonly { readonly type?: unknown }[] | null;
      // A type that is longer than each of Anthropic's counts as hosted.
      const isLong = tools?.some(({ type }) => typeof type === 'string' && type.length > 62) === true;
      const { model, stream, outputTokensMin: least, routingMembers } = result.call;
      const isSame =
        model === members.model &&
        stream === (members.stream ?? false) &&
        least === outputTokensMin(members) &&
        routingMembers.length === (isLong ? 1 : costlyMembersIn(members).length);
      if (!isSame) wrong.push(text);
      taken++;
    }
  }
  t.strictSame(wrong, []);
  t.ok(taken > 500, `${taken} were taken`);
  t.end();
});

void t.test('a name of a model is read exactly, however it is written', (t) => {
  for (const model of ['é'.repeat(9), 'm'.repeat(300), '\u00e9', 'a"b']) {
    const result = read({ ...VALID, model });
    t.equal(result.ok && result.call.model, model);
    const escaped = JSON.stringify({ ...VALID, model }).replaceAll('é', '\\u00e9');
    const again = read(escaped);
    t.equal(again.ok && again.call.model, model);
  }
  t.end();
});

void t.test('what decoders read differently, or bills more, is refused', (t) => {
  for (const [text, message] of [
    [
      '{"model":"m","Model":"n","max_tokens":1,"messages":[{"role":"user","content":"x"}]}',
      /Model must be written as model/,
    ],
    [
      '{"model":"m","max_tokens":1,"max_tokens":9,"messages":[{"role":"user","content":"x"}]}',
      /max_tokens must be given once/,
    ],
    ['{"model":"m","max_tokens":1e3,"messages":[{"role":"user","content":"x"}]}', /digits alone/],
    [
      '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","Text":"x"}]}]}',
      /Text must be written as text/,
    ],
  ] as const) {
    const result = read(text);
    t.match(result.ok ? '' : result.error.message, message);
  }
  const routing = (more: object) => {
    const result = read({ ...VALID, ...more });
    return result.ok ? result.call.routingMembers : result.error.message;
  };
  t.same(routing({ tools: [{ type: 'web_search_20250305', name: 'web_search' }] }), ['hosted_tools']);
  t.same(
    routing({
      tools: [
        { type: 'bash_20250124', name: 'bash' },
        { name: 'a', input_schema: {} },
      ],
    }),
    [],
  );
  const clear = [{ type: 'clear_thinking_20251015', keep: 'all' }, { type: 'clear_tool_uses_20250919' }];
  t.same(routing({ context_management: { edits: clear } }), []);
  t.same(routing({ context_management: null }), []);
  for (const edit of [{ type: 'compact_20260112' }, { type: 'of_next_year' }, {}, 1])
    t.same(routing({ context_management: { edits: [...clear, edit] } }), ['context_management']);
  for (const name of ['Context_management', 'context_management'])
    t.type(routing({ [name]: { edits: [{ Type: 'compact_20260112' }] } }), 'string', 'in another case');
  t.same(routing({ speed: 'fast', container: 'c', service_tier: 'auto' }), ['speed', 'container']);
  for (const thread of [{ type: 'create' }, { type: 'continue', previous_message_id: 'msg_1' }, 'x', {}])
    t.same(routing({ thread }), ['thread']);
  for (const thread of [null, undefined, false]) t.same(routing({ thread }), []);
  t.type(routing({ Thread: { type: 'create' } }), 'string', 'in another case');
  t.same(routing({ compaction: { type: 'summarize' } }), ['context_management']);
  t.type(routing({ Compaction: { type: 'summarize' } }), 'string', 'in another case');
  t.end();
});

void t.test('a tool that a message adds counts as one of the request', (t) => {
  const adding = (definition: unknown, member = 'tool'): unknown => {
    const change = { type: 'tool_addition', tool: { type: 'tool_definition', definition } };
    const block = member === 'tool' ? change : { type: 'compaction', content: 's', tool_changes: [change] };
    const messages = [
      ...VALID.messages,
      { role: 'system', content: [{ type: 'text', text: 'x' }, { ...block }] },
    ];
    const result = read({ ...VALID, messages });
    return result.ok ? result.call.routingMembers : result.error.message;
  };
  for (const member of ['tool', 'tool_changes']) {
    for (const type of [undefined, null, 'custom', 'bash_20250124', 'computer_toolset_20260801'])
      t.same(adding({ type, name: 'a' }, member), [], String(type));
    for (const type of ['web_search_20260318', 'of_next_year', 'x'.repeat(200), 7])
      t.same(adding({ type, name: 'a' }, member), ['hosted_tools'], String(type));
    t.match(adding({ Type: 'web_search_20260318' }, member), /Type must be written as type/);
  }
  for (const tool of [{ type: 'tool_reference', name: 'a' }, { type: 'mcp_toolset' }, null, 'x', [], 7]) {
    const messages = [{ role: 'system', content: [{ type: 'tool_removal', tool }] }];
    t.match(
      read({ ...VALID, messages }),
      { ok: true, call: { routingMembers: [] } },
      'a name is no definition',
    );
  }
  t.end();
});

void t.test('errors and headers are Anthropic’s', (t) => {
  const { errors } = MESSAGES;
  const of = (code: Parameters<typeof errors.status>[0]['code']) => {
    const error = { code, message: 'a "b"' };
    const body = JSON.parse(errors.body(error, 'req_1')) as { error: { type: string } };
    t.match(body, { type: 'error', error: { message: 'a "b"' }, request_id: 'req_1' });
    return `${errors.status(error)} ${body.error.type}`;
  };
  t.equal(of('missing_api_key'), '401 authentication_error');
  t.equal(of('key_disabled'), '403 permission_error');
  t.equal(of('insufficient_quota'), '403 permission_error');
  t.equal(of('model_not_found'), '404 not_found_error');
  t.equal(of('not_found'), '404 not_found_error');
  t.equal(of('request_too_large'), '413 request_too_large');
  t.equal(of('rate_limit_exceeded'), '429 rate_limit_error');
  t.equal(of('invalid_parameters'), '400 invalid_request_error');
  t.equal(of('provider_unavailable'), '502 api_error');
  t.equal(of('overloaded'), '529 overloaded_error');
  t.match(
    errors.event({ code: 'overloaded', message: 'x' }, 'r'),
    /^event: error\ndata: \{"type":"error".*\}\n\n$/,
  );
  const lines = messagesHeaderLines(
    {
      requestId: 'req_1',
      rateLimit: { limit: 60, remaining: 59, resetSeconds: Date.UTC(2026, 0, 2, 3, 4, 35) / 1_000 },
      tokenLimit: { limit: 1000, remaining: 9, resetMs: 1500 },
    },
    Date.UTC(2026, 0, 2, 3, 4, 5),
  );
  t.match(lines, '\r\nrequest-id: req_1');
  t.match(lines, '\r\nanthropic-ratelimit-requests-reset: 2026-01-02T03:04:35Z');
  t.match(
    lines,
    '\r\nanthropic-ratelimit-tokens-remaining: 9\r\nanthropic-ratelimit-tokens-reset: 2026-01-02T03:04:07Z',
  );
  t.end();
});
