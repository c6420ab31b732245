/**
 * Each place in a choice where a model's text can stand: the members of a stream's delta or of a message, or,
 * for completions, of the choice itself. Tests try each of them.
 */

export interface TextKind {
  readonly name: string;
  /** Of a delta or message with that text. */
  readonly members?: (text: string) => object;
  /** Of the choice, beside delta and message. */
  readonly ofChoice?: (text: string) => object;
  /** How often the text stands there, though it is generated once. */
  readonly copies?: number;
}

export const TEXT_KINDS: readonly TextKind[] = [
  { name: 'content', members: (content) => ({ content }) },
  {
    name: 'content that the choice repeats',
    members: (content) => ({ content }),
    ofChoice: (text) => ({ text }),
    copies: 2,
  },
  { name: 'content in parts', members: (text) => ({ content: [{ type: 'text', text }] }) },
  {
    name: 'thinking in parts',
    members: (text) => ({ content: [{ type: 'thinking', thinking: [{ type: 'text', text }] }] }),
  },
  { name: 'content of bare texts', members: (text) => ({ content: [text] }) },
  { name: 'refusal', members: (refusal) => ({ content: null, refusal }) },
  { name: 'refusal in parts', members: (refusal) => ({ content: [{ type: 'refusal', refusal }] }) },
  { name: 'reasoning_content', members: (text) => ({ content: null, reasoning_content: text }) },
  { name: 'reasoning', members: (reasoning) => ({ content: '', reasoning }) },
  { name: 'thinking', members: (thinking) => ({ thinking }) },
  {
    name: 'reasoning_details',
    members: (text) => ({
      reasoning_details: [{ type: 'reasoning.text', text, format: 'unknown', index: 0 }],
    }),
  },
  {
    name: 'a summary in reasoning_details',
    members: (summary) => ({ reasoning_details: [{ type: 'reasoning.summary', summary }] }),
  },
  {
    name: 'thinking_blocks',
    members: (thinking) => ({ thinking_blocks: [{ type: 'thinking', thinking, signature: 'x'.repeat(40) }] }),
  },
  {
    name: 'reasoning under two names',
    members: (text) => ({ reasoning: text, reasoning_content: text }),
    copies: 2,
  },
  {
    name: 'reasoning with its details',
    members: (text) => ({
      content: '',
      reasoning: text,
      reasoning_details: [{ type: 'reasoning.text', text }],
    }),
    copies: 2,
  },
  { name: 'audio transcript', members: (transcript) => ({ content: null, audio: { id: 'a', transcript } }) },
  {
    name: "arguments of a tool's call",
    members: (text) => ({
      tool_calls: [{ index: 0, id: 'c', type: 'function', function: { arguments: text } }],
    }),
  },
  {
    name: "the name in a tool's call",
    members: (text) => ({
      tool_calls: [{ index: 1, type: 'function', function: { name: text, arguments: '' } }],
    }),
  },
  {
    name: 'input of a custom tool',
    members: (input) => ({ tool_calls: [{ index: 0, type: 'custom', custom: { input } }] }),
  },
  { name: 'arguments of a function call', members: (text) => ({ function_call: { arguments: text } }) },
  { name: 'the name in a function call', members: (text) => ({ function_call: { name: text } }) },
  { name: 'text of the choice', ofChoice: (text) => ({ text }) },
];

/** A choice of a stream with that text. */
export const streamChoice = (kind: TextKind, index: number, text: string): object => ({
  index,
  ...(kind.members && { delta: kind.members(text) }),
  ...kind.ofChoice?.(text),
  finish_reason: null,
});

/** A choice of a whole response with that text. */
export const wholeChoice = (kind: TextKind, index: number, text: string): object => ({
  index,
  ...(kind.members && { message: { role: 'assistant', ...kind.members(text) } }),
  ...kind.ofChoice?.(text),
  finish_reason: 'stop',
});
