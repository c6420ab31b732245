/**
 * Events that are proven by their likeness: exactly those that are JSON, told nothing, and differ in their
 * texts alone.
 */
import t from 'tap';
import { EventTemplates } from '#src/upstream/event-template.js';
import { newSeed, pick, randomOf } from '../../support/random.js';

const START = 'data: {"id":"x","choices":[{"index":0,"delta":{"content":"';
const END = '"},"finish_reason":null}],"usage":null}\n\n';
const eventOf = (text: string): string => `${START}${text}${END}`;

function templatesOf(...events: readonly string[]): EventTemplates {
  const templates = new EventTemplates();
  for (const event of events) templates.learn(event);
  return templates;
}

const isUnknown = (learned: string): boolean => templatesOf(learned).skipFrom(learned, 0) === 0;
const isKnown = (templates: EventTemplates, event: string): boolean =>
  templates.skipFrom(event, 0) === event.length;

void t.test('a run goes on as long as the events match a template', (t) => {
  const templates = templatesOf(eventOf('a'));
  const run = eventOf('b') + eventOf('') + eventOf('\\"\\u00e9\\\\');
  t.equal(templates.skipFrom(run, 0), run.length);
  t.equal(templates.skipFrom(`${run}data: {}\n\n`, 0), run.length);
  t.equal(templates.skipFrom(run, eventOf('b').length), run.length);
  t.equal(
    templates.skipFrom(run.slice(0, -1), 0),
    run.length - eventOf('\\"\\u00e9\\\\').length,
    'cut short',
  );
  t.equal(new EventTemplates().skipFrom(run, 0), 0, 'nothing was learned');
  t.end();
});

void t.test('runs of events of two templates, with one, two and three texts, cut anywhere', (t) => {
  const twoTexts = (text: string): string => eventOf(`${text}","reasoning":"${text}`);
  const threeTexts = (text: string): string => twoTexts(`${text}","refusal":"${text}`);
  for (const [one, other] of [
    [eventOf, twoTexts],
    [twoTexts, threeTexts],
    [threeTexts, eventOf],
  ] as const) {
    const templates = templatesOf(one('a'), other('a'));
    for (let kinds = 0; kinds < 2 ** 4; kinds++) {
      const events = [0, 1, 2, 3].map((place) => ((kinds >> place) & 1 ? one : other)('xyz'.slice(0, place)));
      const run = events.join('');
      let start = 0;
      for (const event of events) {
        t.equal(templates.skipFrom(run, start), run.length);
        for (const cut of [1, 2, event.length >> 1, event.length - 1])
          t.equal(templates.skipFrom(run.slice(0, start + cut), 0), start);
        t.equal(templates.skipFrom(`${run.slice(0, start)}data: {}\n\n${run.slice(start)}`, 0), start);
        start += event.length;
      }
    }
  }
  t.end();
});

void t.test('what differs anywhere else matches no template', (t) => {
  const templates = templatesOf(eventOf('a'));
  for (const event of [
    eventOf('b').replace('null}]', '"stop"}]'),
    eventOf('b').replace('"usage":null', '"usage":{}'),
    eventOf('b').replace('"index":0', '"index":1'),
    eventOf('b').replace('\n\n', '\r\n\r\n'),
    eventOf('b').replace('data: ', 'data:'),
    eventOf('b","error":"x'),
    ` ${eventOf('b')}`,
  ])
    t.notOk(isKnown(templates, event), event);
  t.end();
});

void t.test('what may stand in a text: every pair of bytes, and every escape', (t) => {
  const templates = templatesOf(eventOf('a'));
  let sound = 0;
  const check = (text: string): void => {
    const event = eventOf(text);
    let isJson = true;
    try {
      JSON.parse(event.slice('data: '.length));
    } catch {
      isJson = false;
    }
    // A quote that ends the text early may be good JSON that does not match, which is parsed.
    if (isKnown(templates, event) && !isJson) t.fail(`taken: ${JSON.stringify(text)}`);
    if (!isKnown(templates, event) && isJson && !/(?<!\\)"/.test(text))
      t.fail(`not taken: ${JSON.stringify(text)}`);
    if (isJson) sound++;
  };
  for (let first = 0; first < 256; first++) {
    for (let second = 0; second < 256; second++) check(String.fromCharCode(first, second));
    check(`\\${String.fromCharCode(first)}`);
    for (const digits of ['000', '00g', 'D80', '"00', '\\00'])
      check(`\\u${String.fromCharCode(first)}${digits}`);
  }
  t.ok(sound > 40_000, `${sound} were JSON`);
  t.end();
});

void t.test('members that merely look like a text', (t) => {
  // The name is part of another text, or of another name.
  const odd = `data: {"a":"\\"content\\":\\"x","b\\"content":"y","choices":[{"delta":{"content":"z"}}]}\n\n`;
  const templates = templatesOf(odd);
  for (const [from, to] of [
    ['"y"', '"q"'],
    ['"z"', '"q"'],
  ] as const)
    t.ok(isKnown(templates, odd.replace(from, to)), to);
  t.notOk(isKnown(templates, odd.replace('\\"x"', '\\"q"')), 'that of the text is no start');
  t.end();
});

void t.test('two templates by turns; what serves for nothing is learned no more', (t) => {
  const other = eventOf('a').replace('content', 'reasoning_content');
  const templates = templatesOf(eventOf('a'), other);
  t.ok(isKnown(templates, eventOf('b') + other + eventOf('c')));
  t.ok(isUnknown('data: {"choices":[]}\n\n'), 'events without texts have none');
  t.ok(isUnknown(`data: {"content":"${'x'.repeat(5_000)}"}\n\n`), 'long ones are not kept');
  t.ok(isUnknown('data: {"content":"x"}\r\n\r'), 'the blank line goes on');

  const vain = new EventTemplates();
  for (let count = 0; count < 100; count++) vain.learn(eventOf('a').replace('"x"', `"${count}"`));
  vain.learn(eventOf('a'));
  t.notOk(isKnown(vain, eventOf('b')));
  const served = new EventTemplates();
  for (let count = 0; count < 100; count++) {
    const event = eventOf('a').replace('"x"', `"${count}"`);
    served.learn(event);
    t.ok(isKnown(served, event));
  }
  t.end();
});

void t.test('random events, mutated: what is taken is JSON of the same members', (t) => {
  const seed = newSeed();
  const next = randomOf(seed);
  let taken = 0;
  let rejected = 0;
  for (let count = 0; count < 20_000; count++) {
    const text = (): string =>
      Array.from({ length: 3 }, () =>
        pick(next, ['a', '\\n', '\\"', '\\\\', 'é', '{', '"content":"', '\\u00e9']),
      ).join('');
    const valueOf = (): object => ({
      id: 'x',
      choices: [{ index: 0, delta: { content: text(), reasoning: text() }, finish_reason: null }],
      usage: null,
    });
    const templates = templatesOf(`data: ${JSON.stringify(valueOf())}\n\n`);
    const event = `data: ${JSON.stringify(valueOf())}\n\n`;
    const at = Math.floor(next() * event.length);
    const mutated =
      event.slice(0, at) + pick(next, ['', '"', '\\', '\n', 'x', '\u0000', '}', '{"']) + event.slice(at + 1);
    if (!isKnown(templates, mutated)) {
      rejected++;
      continue;
    }
    taken++;
    try {
      const { usage, choices } = JSON.parse(mutated.slice(6)) as {
        usage: unknown;
        choices: Record<string, unknown>[];
      };
      if (usage !== null || choices[0]!.finish_reason !== null) t.fail(`seed ${seed}: ${mutated}`);
    } catch {
      t.fail(`seed ${seed}: ${mutated}`);
    }
  }
  t.ok(taken > 1_000 && rejected > 1_000, `${taken} taken, ${rejected} refused`);
  t.end();
});
