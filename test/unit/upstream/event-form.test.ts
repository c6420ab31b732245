/**
 * Events that are proven by their likeness: exactly those that are JSON, told nothing, and differ in their
 * texts alone.
 */
import t from 'tap';
import { EventForms } from '#src/upstream/event-form.js';
import { newSeed, pick, randomOf } from '../../support/random.js';

const START = 'data: {"id":"x","choices":[{"index":0,"delta":{"content":"';
const END = '"},"finish_reason":null}],"usage":null}\n\n';
const eventOf = (text: string): string => `${START}${text}${END}`;

function formsOf(...events: readonly string[]): EventForms {
  const forms = new EventForms();
  for (const event of events) forms.learn(event);
  return forms;
}

const isUnknown = (learned: string): boolean => formsOf(learned).skipFrom(learned, 0) === 0;
const isKnown = (forms: EventForms, event: string): boolean => forms.skipFrom(event, 0) === event.length;

void t.test('a run goes on as long as the events are of a known form', (t) => {
  const forms = formsOf(eventOf('a'));
  const run = eventOf('b') + eventOf('') + eventOf('\\"\\u00e9\\\\');
  t.equal(forms.skipFrom(run, 0), run.length);
  t.equal(forms.skipFrom(`${run}data: {}\n\n`, 0), run.length);
  t.equal(forms.skipFrom(run, eventOf('b').length), run.length);
  t.equal(forms.skipFrom(run.slice(0, -1), 0), run.length - eventOf('\\"\\u00e9\\\\').length, 'cut short');
  t.equal(new EventForms().skipFrom(run, 0), 0, 'nothing was learned');
  t.end();
});

void t.test('runs of events of two forms, with one, two and three texts, cut anywhere', (t) => {
  const twoTexts = (text: string): string => eventOf(`${text}","reasoning":"${text}`);
  const threeTexts = (text: string): string => twoTexts(`${text}","refusal":"${text}`);
  for (const [one, other] of [
    [eventOf, twoTexts],
    [twoTexts, threeTexts],
    [threeTexts, eventOf],
  ] as const) {
    const forms = formsOf(one('a'), other('a'));
    for (let kinds = 0; kinds < 2 ** 4; kinds++) {
      const events = [0, 1, 2, 3].map((place) => ((kinds >> place) & 1 ? one : other)('xyz'.slice(0, place)));
      const run = events.join('');
      let start = 0;
      for (const event of events) {
        t.equal(forms.skipFrom(run, start), run.length);
        for (const cut of [1, 2, event.length >> 1, event.length - 1])
          t.equal(forms.skipFrom(run.slice(0, start + cut), 0), start);
        t.equal(forms.skipFrom(`${run.slice(0, start)}data: {}\n\n${run.slice(start)}`, 0), start);
        start += event.length;
      }
    }
  }
  t.end();
});

void t.test('what differs anywhere else is of no known form', (t) => {
  const forms = formsOf(eventOf('a'));
  for (const event of [
    eventOf('b').replace('null}]', '"stop"}]'),
    eventOf('b').replace('"usage":null', '"usage":{}'),
    eventOf('b').replace('"index":0', '"index":1'),
    eventOf('b').replace('\n\n', '\r\n\r\n'),
    eventOf('b').replace('data: ', 'data:'),
    eventOf('b","error":"x'),
    ` ${eventOf('b')}`,
  ])
    t.notOk(isKnown(forms, event), event);
  t.end();
});

void t.test('what may stand in a text: every pair of bytes, and every escape', (t) => {
  const forms = formsOf(eventOf('a'));
  let sound = 0;
  const check = (text: string): void => {
    const event = eventOf(text);
    let isJson = true;
    try {
      JSON.parse(event.slice('data: '.length));
    } catch {
      isJson = false;
    }
    // A quote that ends the text early may be good JSON of another form, which is parsed.
    if (isKnown(forms, event) && !isJson) t.fail(`taken: ${JSON.stringify(text)}`);
    if (!isKnown(forms, event) && isJson && !/(?<!\\)"/.test(text))
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
  const forms = formsOf(odd);
  for (const [from, to] of [
    ['"y"', '"q"'],
    ['"z"', '"q"'],
  ] as const)
    t.ok(isKnown(forms, odd.replace(from, to)), to);
  t.notOk(isKnown(forms, odd.replace('\\"x"', '\\"q"')), 'that of the text is no start');
  t.end();
});

void t.test('two forms by turns; what serves for nothing is learned no more', (t) => {
  const other = eventOf('a').replace('content', 'reasoning_content');
  const forms = formsOf(eventOf('a'), other);
  t.ok(isKnown(forms, eventOf('b') + other + eventOf('c')));
  t.ok(isUnknown('data: {"choices":[]}\n\n'), 'events without texts have none');
  t.ok(isUnknown(`data: {"content":"${'x'.repeat(5_000)}"}\n\n`), 'long ones are not kept');
  t.ok(isUnknown('data: {"content":"x"}\r\n\r'), 'the blank line goes on');

  const vain = new EventForms();
  for (let count = 0; count < 100; count++) vain.learn(eventOf('a').replace('"x"', `"${count}"`));
  vain.learn(eventOf('a'));
  t.notOk(isKnown(vain, eventOf('b')));
  const served = new EventForms();
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
    const forms = formsOf(`data: ${JSON.stringify(valueOf())}\n\n`);
    const event = `data: ${JSON.stringify(valueOf())}\n\n`;
    const at = Math.floor(next() * event.length);
    const mutated =
      event.slice(0, at) + pick(next, ['', '"', '\\', '\n', 'x', '\u0000', '}', '{"']) + event.slice(at + 1);
    if (!isKnown(forms, mutated)) {
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
