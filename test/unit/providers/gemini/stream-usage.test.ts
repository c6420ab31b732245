/** Which usage of a Gemini stream is that of the call. */
import t from 'tap';
import { StreamUsage } from '#src/providers/gemini/stream-usage.js';

const event = (tokens?: unknown): { usageMetadata?: unknown } =>
  tokens === undefined
    ? {}
    : { usageMetadata: typeof tokens === 'number' ? { promptTokenCount: tokens } : tokens };
const promptOf = (usage: StreamUsage['last']): number | undefined => usage?.promptTokens;

/** A step: a parsed event with its tokens and how many parts it has, or one that matched and has a text. */
type Step = ['parsed', tokens: unknown, parts: number] | ['matched', tokens: unknown, hasText: boolean];

const CASES: [name: string, steps: Step[], last: number | undefined, next: number | undefined][] = [
  ['nothing', [], undefined, undefined],
  ['no usage', [['parsed', undefined, 1]], undefined, undefined],
  ['a usage with its part', [['parsed', 5, 1]], 5, 5],
  [
    'a later part without one',
    [
      ['parsed', 5, 1],
      ['parsed', undefined, 1],
    ],
    5,
    undefined,
  ],
  [
    'a later event without parts',
    [
      ['parsed', 5, 1],
      ['parsed', undefined, 0],
    ],
    5,
    5,
  ],
  [
    'usage alone, after its parts',
    [
      ['parsed', undefined, 2],
      ['parsed', 6, 0],
    ],
    6,
    6,
  ],
  [
    'a match with a newer usage',
    [
      ['parsed', 5, 1],
      ['matched', 6, true],
      ['matched', 7, true],
    ],
    7,
    7,
  ],
  [
    'a match without one',
    [
      ['parsed', 5, 1],
      ['matched', undefined, true],
    ],
    5,
    undefined,
  ],
  [
    'a match without text',
    [
      ['parsed', 5, 1],
      ['matched', undefined, false],
    ],
    5,
    5,
  ],
  [
    'a match, then an event with neither',
    [
      ['matched', 6, true],
      ['parsed', undefined, 0],
    ],
    6,
    6,
  ],
  [
    'a match, then a part without a usage',
    [
      ['matched', 6, true],
      ['parsed', undefined, 1],
    ],
    6,
    undefined,
  ],
  [
    'a match, then a newer usage',
    [
      ['matched', 6, true],
      ['parsed', 7, 1],
    ],
    7,
    7,
  ],
  [
    'a usage that is none changes nothing',
    [
      ['parsed', 5, 1],
      ['parsed', null, 0],
      ['matched', [], false],
      ['parsed', {}, 0],
      ['matched', { trafficType: 'ON_DEMAND' }, false],
    ],
    5,
    5,
  ],
  [
    'a part with a usage without counts',
    [
      ['parsed', 5, 1],
      ['parsed', { trafficType: 'ON_DEMAND' }, 1],
    ],
    5,
    undefined,
  ],
  ['a usage without counts alone', [['parsed', { trafficType: 'ON_DEMAND' }, 1]], undefined, undefined],
];

void t.test('the last usage, and that of the call', (t) => {
  for (const [name, steps, last, next] of CASES) {
    const usage = new StreamUsage();
    for (const [kind, tokens, content] of steps)
      if (kind === 'matched') usage.matchedEvent(JSON.stringify(event(tokens)), content);
      else {
        usage.parsedEvent(event(tokens));
        for (let part = 0; part < content; part++) usage.part();
      }
    t.equal(promptOf(usage.last), last, `${name}: last`);
    t.equal(promptOf(usage.next()), next, `${name}: next`);
    t.equal(usage.next(), undefined, `${name}: not twice`);
    t.equal(promptOf(usage.last), last, `${name}: still the last`);
  }
  t.end();
});

void t.test('a newer usage is given after one was given', (t) => {
  const usage = new StreamUsage();
  usage.parsedEvent(event(5));
  t.equal(promptOf(usage.next()), 5);
  usage.parsedEvent(event(6));
  t.equal(promptOf(usage.next()), 6);
  usage.matchedEvent('no JSON', false);
  t.equal(usage.next(), undefined);
  t.equal(promptOf(usage.last), 6);
  t.end();
});
