/** What models say, for the dialects of providers: blocks of every kind, ends and usages. */
import type { AnswerCase, Block, Dialect } from './provider-dialects.js';

const text = (value: string): Block => ({ kind: 'text', text: value });
const thinking = (value: string): Block => ({
  kind: 'thinking',
  text: value,
  signature: 'c2lnbmF0dXJlLW9uZQ==',
});
const REDACTED: Block = { kind: 'redacted', data: 'cmVkYWN0ZWQ=' };
const tool = (id: string, args: object = { city: 'Oslo' }): Block => ({
  kind: 'tool',
  id,
  name: 'get_weather',
  args,
});

const signed = (signature: string): Block => ({
  kind: 'signed',
  id: '',
  name: 'get_weather',
  args: { city: 'Oslo' },
  signature,
});

const CONTENTS: Readonly<Record<string, readonly Block[]>> = {
  text: [text('Hello, how can I help you today?')],
  'a long text': [text('All work and no play makes Jack a dull boy. '.repeat(12))],
  unicode: [text('Ünïcödé 漢字 😀 "quoted" \\ \n\r\t\u2028 end')],
  'text like a stream': [text('data: {"a":1}\n\nevent: ping\n\ndata: [DONE]\n\n')],
  'two texts': [text('One. '), text('Two.')],
  nothing: [],
  'a tool': [tool('toolu_01A')],
  'text and a tool': [text('Let me see.'), tool('toolu_01A')],
  'two tools': [tool('toolu_01A'), tool('toolu_02B', { city: 'Rome' })],
  'a tool without arguments': [tool('toolu_01A', {})],
  'a tool with deep arguments': [
    tool('toolu_01A', {
      city: 'Åre "x" \\ 漢',
      more: { list: [1, 2.5, null, true, []], empty: {} },
      big: 'y'.repeat(90),
    }),
  ],
  'thinking and text': [thinking('The user says hello. I greet.'), text('Hello!')],
  'thinking and a tool': [thinking('I need the weather.'), tool('toolu_01A')],
  'thinking, text, two tools': [
    thinking('Two cities.'),
    text('I ask for both.'),
    tool('toolu_01A'),
    tool('toolu_02B', { city: 'Rome' }),
  ],
  'thinking twice': [thinking('First. '), text('One.'), thinking('Second.'), text('Two.')],
  'redacted thinking': [REDACTED, text('Hello!')],
  'thinking and redacted': [thinking('First.'), REDACTED, tool('toolu_01A')],
  'a signed tool': [signed('c2lnbmF0dXJlLW9uZQ==')],
  'thinking, a signed tool and another': [
    thinking('Two cities.'),
    signed('c2lnbmF0dXJlLW9uZQ=='),
    tool('', { city: 'Rome' }),
  ],
  'thinking alone': [thinking('All the bound went here.')],
};

/** All contents that a dialect has words for, with each of its stops and usages. */
export function answerCases(dialect: Dialect): AnswerCase[] {
  const cases: AnswerCase[] = [];
  const [ordinary] = Object.values(dialect.usages);
  for (const [name, blocks] of Object.entries(CONTENTS)) {
    if (!blocks.every(({ kind }) => dialect.kinds.includes(kind))) continue;
    const hasTool = blocks.some(({ kind }) => kind === 'tool' || kind === 'signed');
    const stop = dialect.stops[name === 'thinking alone' ? 1 : hasTool ? 2 : 0];
    cases.push({ name, blocks, stop, usage: ordinary! });
  }
  const greeting = CONTENTS.text!;
  for (const stop of new Set(dialect.stops.slice(0, 2).concat(dialect.stops.slice(3))))
    cases.push({ name: `stop ${stop}`, blocks: greeting, stop, usage: ordinary! });
  for (const [name, usage] of Object.entries(dialect.usages))
    for (const content of ['text', 'text and a tool'])
      cases.push({
        name: `usage ${name}, ${content}`,
        blocks: CONTENTS[content]!,
        stop: dialect.stops[content === 'text' ? 0 : 2],
        usage,
      });
  return cases;
}
