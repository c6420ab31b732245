/** The caller of another door is told its own names for what a provider refuses of the translated request. */
import t, { type Test } from 'tap';
import { DOOR_INDEX } from '#src/core/door-names.js';
import { callersPath, withOrigin } from '#src/doors/callers-path.js';
import { dialectAt } from '#src/doors/dialects.js';

type Case = readonly [chat: string, own: string];

function check(
  t: Test,
  door: 'messages' | 'responses',
  body: object,
  extras: boolean,
  cases: readonly Case[],
): void {
  const { translator } = dialectAt(DOOR_INDEX[door])!;
  const chat = translator!.toChat(body as Readonly<Record<string, unknown>>, { extras });
  for (const [path, own] of cases) t.equal(callersPath(chat, path, translator!.names), own, path);
  t.end();
}

const IMAGE = 'https://example.com/a.png';

void t.test('responses', (t) =>
  check(
    t,
    'responses',
    {
      model: 'm',
      instructions: 'Be brief',
      max_output_tokens: 9,
      input: [
        { role: 'user', content: 'a' },
        { type: 'function_call', call_id: 'c', name: 'n', arguments: '{}' },
        { type: 'function_call', call_id: 'd', name: 'n', arguments: '{}' },
        { type: 'function_call_output', call_id: 'c', output: 'x' },
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'b' },
            { type: 'input_image', image_url: IMAGE },
          ],
        },
      ],
      tools: [{ type: 'function', name: 'n', parameters: {} }],
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'n' }] },
      text: { format: { type: 'json_schema', name: 's', schema: {} } },
      reasoning: { effort: 'low' },
    },
    true,
    [
      ['messages', 'input'],
      ['messages[0].content', 'instructions'],
      ['messages[1].content', 'input[0].content'],
      ['messages[2].tool_calls[1].function.arguments', 'input[2].arguments'],
      ['messages[3].tool_call_id', 'input[3].call_id'],
      ['messages[4].content[1].image_url.url', 'input[4].content[1].image_url'],
      ['messages[4].content[0]', 'input[4].content[0]'],
      ['messages[9].role', 'input[9].role'],
      ['tools[0].function.parameters', 'tools[0].parameters'],
      ['tools[0].function', 'tools[0]'],
      ['tool_choice', 'tool_choice'],
      ['tool_choice.allowed_tools.mode', 'tool_choice.mode'],
      ['tool_choice.allowed_tools.tools', 'tool_choice.tools'],
      ['tool_choice.allowed_tools.tools[0].function.name', 'tool_choice.tools[0].name'],
      ['max_completion_tokens', 'max_output_tokens'],
      ['response_format.json_schema.schema', 'text.format.schema'],
      ['reasoning_effort', 'reasoning.effort'],
      ['temperature', 'temperature'],
    ],
  ),
);

void t.test('outputs with images for an upstream whose tools return texts alone', (t) =>
  check(
    t,
    'responses',
    {
      model: 'm',
      input: [
        { type: 'function_call', call_id: 'c', name: 'n', arguments: '{}' },
        {
          type: 'function_call_output',
          call_id: 'c',
          output: [
            { type: 'input_text', text: 'x' },
            { type: 'input_image', image_url: IMAGE },
          ],
        },
      ],
    },
    false,
    [
      ['messages[1].content', 'input[1].content'],
      ['messages[2].content[0].image_url.url', 'input[1].output[1].image_url'],
      ['messages[2].content[0]', 'input[1].output[1]'],
    ],
  ),
);

void t.test('what the door does not name stays as it is', (t) => {
  const names = { function: '', 'function.parameters': 'input_schema' };
  const chat = { tools: [withOrigin('tools[4]', { type: 'function', function: {} })], model: {} };
  for (const path of ['constructor', '__proto__.x', 'toString', 'model.constructor', 'valueOf[0].function'])
    t.equal(callersPath(chat, path, names), path);
  t.equal(callersPath(chat, 'tools[0].function.constructor', names), 'tools[4].constructor');
  t.equal(callersPath(chat, 'tools[0].function.parameters.a', names), 'tools[4].input_schema.a');
  t.equal(callersPath(chat, 'tools[0].function.name', names), 'tools[4].name');
  t.equal(callersPath(chat, 'function.name', names), 'name');
  t.equal(callersPath({ tools: [{ ...chat.tools[0] }] }, 'tools[0].type', names), 'tools[0].type', 'a copy');
  t.end();
});

void t.test('messages of the system that become one', (t) =>
  check(
    t,
    'responses',
    {
      model: 'm',
      instructions: 'Be brief',
      input: [
        { role: 'developer', content: 'You may read.' },
        { role: 'user', content: 'a' },
      ],
    },
    false,
    [
      ['messages[0].content', 'instructions'],
      ['messages[1].content', 'input[1].content'],
    ],
  ),
);

void t.test('messages', (t) =>
  check(
    t,
    'messages',
    {
      model: 'm',
      max_tokens: 9,
      system: [{ type: 'text', text: 'Be brief' }],
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'a' },
            { type: 'image', source: { type: 'url', url: IMAGE } },
          ],
        },
        {
          role: 'assistant',
          content: [
            { type: 'text', text: 'b' },
            { type: 'tool_use', id: 'c', name: 'n', input: {} },
            { type: 'thinking', thinking: 'x', signature: 's' },
            { type: 'redacted_thinking', data: 'd' },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: 'c', content: 'x' },
            { type: 'text', text: 'd' },
            { type: 'image', source: { type: 'url', url: IMAGE } },
          ],
        },
      ],
      tools: [{ name: 'n', input_schema: { type: 'object' } }],
      tool_choice: { type: 'tool', name: 'n' },
      stop_sequences: ['x'],
    },
    true,
    [
      ['messages[1].content[1].image_url.url', 'messages[0].content[1].source'],
      ['messages[2].tool_calls[0].function.arguments', 'messages[1].content[1].input'],
      ['messages[2].thinking_blocks[0].signature', 'messages[1].content[2].signature'],
      ['messages[2].thinking_blocks[1].data', 'messages[1].content[3].data'],
      ['tool_choice', 'tool_choice'],
      ['tool_choice.type', 'tool_choice.type'],
      ['tool_choice.function.name', 'tool_choice.name'],
      ['messages[3].tool_call_id', 'messages[2].content[0].tool_use_id'],
      ['messages[4].content[1].image_url', 'messages[2].content[2].source'],
      ['tools[0].function.parameters', 'tools[0].input_schema'],
      ['stop[0]', 'stop_sequences[0]'],
      ['reasoning_effort', 'output_config.effort or thinking'],
      ['thinking.type', 'thinking.type'],
      ['top_k', 'top_k'],
    ],
  ),
);
