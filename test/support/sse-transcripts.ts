import { pick, type Random } from './random.js';
/**
 * Streams as providers send them, recorded-like and random, and a slow and plain reading of them to judge the
 * quick one by.
 */

const chunk = (delta: object, finishReason: string | null = null, more: object = {}): object => ({
  id: 'chatcmpl-1',
  object: 'chat.completion.chunk',
  created: 1_700_000_000,
  model: 'm',
  choices: [{ index: 0, delta, logprobs: null, finish_reason: finishReason }],
  ...more,
});
const usageOf = (prompt: number, completion: number): object => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: prompt + completion,
});
const usageChunk = (prompt: number, completion: number): object => ({
  ...chunk({}),
  choices: [],
  usage: usageOf(prompt, completion),
});
const event = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`;
const DONE = 'data: [DONE]\n\n';

/** The habits of providers that we know of, each with its own oddity. */
export const PROVIDER_TRANSCRIPTS: Readonly<Record<string, string>> = {
  'usage null in every chunk, then a usage chunk':
    event(chunk({ role: 'assistant', content: '', refusal: null }, null, { usage: null })) +
    event(chunk({ content: 'Hé' }, null, { usage: null, obfuscation: 'xK2' })) +
    event(chunk({ content: 'llo \u{1f600} 你好' }, null, { usage: null })) +
    event(chunk({}, 'stop', { usage: null })) +
    event({ ...usageChunk(9, 4), service_tier: 'default' }) +
    DONE,
  'a first chunk about the prompt, without choices':
    event({
      ...chunk({}),
      choices: [],
      prompt_filter_results: [{ prompt_index: 0, content_filter_results: {} }],
    }) +
    event(chunk({ content: 'a' })) +
    event(chunk({}, 'stop')) +
    event(usageChunk(3, 1)) +
    DONE,
  'comments while it thinks, usage beside the finish':
    ': PROCESSING\n\n: PROCESSING\n\n' +
    event(chunk({ role: 'assistant', content: null, reasoning_content: 'Hm.' })) +
    ': keep-alive\n\n' +
    event(chunk({ content: 'Yes' }, 'stop', { usage: usageOf(5, 2) })) +
    DONE,
  'CRLF, event names and ids':
    [
      `event: message\nid: 1\ndata: ${JSON.stringify(chunk({ content: 'x' }))}\n\n`,
      'retry: 3000\n\n',
      `event: message\nid: 2\ndata: ${JSON.stringify(chunk({}, 'stop'))}\n\n`,
      event(usageChunk(2, 1)),
    ]
      .join('')
      .replaceAll('\n', '\r\n') + 'data: [DONE]\r\n\r\n',
  'no space after the colon, no blank line at the end':
    `data:${JSON.stringify(chunk({ content: 'x' }))}\n\ndata:${JSON.stringify(chunk({}, 'length'))}\n\n` +
    'data:[DONE]',
  'tool calls, whose arguments speak of usage, errors and [DONE]':
    event(
      chunk({
        tool_calls: [{ index: 0, id: 'c', type: 'function', function: { name: 'f', arguments: '' } }],
      }),
    ) +
    event(chunk({ tool_calls: [{ index: 0, function: { arguments: '{"usage":1,"error":"[DONE]"' } }] })) +
    event(
      chunk({ tool_calls: [{ index: 0, function: { arguments: ',"finish_reason":"data: x\\n\\n"}' } }] }),
    ) +
    event(chunk({}, 'tool_calls')) +
    event(usageChunk(30, 12)) +
    DONE,
  'no [DONE], usage last':
    event(chunk({ content: 'x' })) + event(chunk({}, 'stop')) + event(usageChunk(1, 1)),
  'usage after [DONE]':
    event(chunk({ content: 'x' })) + event(chunk({}, 'stop')) + DONE + event(usageChunk(1, 1)),
  'pretty JSON over many data lines, behind a byte-order mark':
    '\uFEFF' +
    [chunk({ content: 'x' }), chunk({}, 'stop'), usageChunk(7, 7)]
      .map((value) => `data: ${JSON.stringify(value, undefined, 1).replaceAll('\n', '\ndata: ')}\n\n`)
      .join('') +
    DONE,
};

const TEXTS = [
  'a',
  ' the',
  '\n\n',
  'data: [DONE]',
  '"usage"',
  '\u{1f468}\u200d\u{1f469}',
  '你好',
  '{"error":1}',
  '\u2028',
  '}',
];
const BETWEEN = [
  ': comment\n\n',
  '\n',
  'event: ping\n\n',
  'retry: 5\nid: 7\n\n',
  'data:\n\n',
  'datum: x\n\n',
];
const BAD = [
  'data: oops\n\n',
  'data: [1]\n\n',
  event({ error: { message: 'overloaded' } }),
  'data: {"choices":[\n\n',
  'data: {oops}\n\n',
];

/** A transcript in one of many forms; with `faulty`, something in it may be wrong. */
export function randomTranscript(next: Random, faulty: boolean): string {
  const chance = (share: number): boolean => next() < share;
  const nulls = chance(0.5) ? { usage: null } : {};
  const events: string[] = [];
  const written = (value: object): string => {
    const indent = chance(0.15) ? 1 : undefined;
    const lines = JSON.stringify(value, undefined, indent).split('\n');
    const head = chance(0.1) ? 'event: x\n: why\n' : '';
    return `${head}${lines.map((line) => `data:${chance(0.9) ? ' ' : ''}${line}`).join('\n')}\n\n`;
  };
  for (let count = 1 + Math.floor(next() * 8); count > 0; count--) {
    if (chance(0.2)) events.push(pick(next, BETWEEN));
    events.push(written(chunk({ content: pick(next, TEXTS) }, null, nulls)));
  }
  events.push(written(chunk({}, 'stop', nulls)));
  const usage = written(usageChunk(Math.floor(next() * 100), Math.floor(next() * 100)));
  const isUsageLate = chance(0.2);
  if (!isUsageLate && chance(0.8)) events.push(usage);
  if (chance(0.8)) {
    events.push('data: [DONE]\n\n');
    if (isUsageLate) events.push(usage);
    if (chance(0.2)) events.push(pick(next, [...BETWEEN, ...BAD]));
  }
  if (faulty) {
    const at = Math.floor(next() * events.length);
    if (chance(0.6)) events.splice(at, 0, pick(next, BAD));
    else events.splice(at);
  }
  let text = events.join('');
  if (chance(0.2)) text = text.trimEnd();
  const lineEnd = pick(next, ['\n', '\n', '\r\n', '\r']);
  if (lineEnd !== '\n') text = text.replaceAll('\n', lineEnd);
  else if (chance(0.2)) text = text.replace(/\n/g, () => pick(next, ['\n', '\r\n']));
  return chance(0.1) ? `\uFEFF${text}` : text;
}

/**
 * The data of the events in a text, as the standard reads them; an event that the end of the text cut counts,
 * too.
 */
export function naiveEvents(text: string): string[] {
  const found: string[] = [];
  let data: string[] = [];
  const dispatch = (): void => {
    if (data.join('') !== '') found.push(data.join('\n'));
    data = [];
  };
  for (const line of text.replace(/^\uFEFF/, '').split(/\r\n|\n|\r/)) {
    if (line === '') dispatch();
    else if (line === 'data' || line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
  }
  dispatch();
  return found;
}

export interface NaiveAnswer {
  /** Data of the events that the client gets, `[DONE]` last. */
  readonly data: readonly string[];
  readonly usage: unknown;
}

/** What a client gets of a sound transcript. */
export function naiveAnswer(text: string, includeUsage: boolean): NaiveAnswer {
  const events = naiveEvents(text);
  const end = events.indexOf('[DONE]');
  const before = end === -1 ? events : events.slice(0, end);
  const usageIn = (data: string): unknown => {
    try {
      return (JSON.parse(data) as { usage?: unknown }).usage ?? undefined;
    } catch {
      return undefined;
    }
  };
  const isUsageAlone = (data: string): boolean =>
    usageIn(data) !== undefined && (JSON.parse(data) as { choices: unknown[] }).choices.length === 0;
  const usage = before.map(usageIn).findLast((value) => value !== undefined);
  const late = end === -1 ? [] : events.slice(end + 1);
  return {
    data: [...before.filter((data) => includeUsage || !isUsageAlone(data)), '[DONE]'],
    usage: usage ?? late.map(usageIn).find((value) => value !== undefined),
  };
}
