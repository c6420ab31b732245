/** Events that differ in their text and their counts alone are known without parsing, and no others. */
import t, { type Test as Tap } from 'tap';
import { TextTemplate } from '#src/providers/gemini/text-template.js';
import { newSeed, randomBelow } from '../../../support/random.js';

const event = (text: string, tokens = '1', more = ''): string =>
  `{"candidates": [{"content": {"parts": [{"text": "${text}"}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 5,"candidatesTokenCount": ${tokens},"candidatesTokensDetails": [{"modality": "TEXT","tokenCount": ${tokens}}]}${more},"modelVersion": "m"}`;

const template = new TextTemplate();
template.learn(event('a'));

const EVENTS: [name: string, event: string, text: string | undefined][] = [
  ['the same', event('a'), 'a'],
  ['another text', event('hello wörld 🌍'), 'hello wörld 🌍'],
  ['an empty text', event(''), ''],
  ['escapes stay', event('\\n\\u003c\\"x\\\\'), '\\n\\u003c\\"x\\\\'],
  ['other counts', event('b', '12345'), 'b'],
  ['a count that is missing', event('b', ''), undefined],
  ['a count that is negative', event('b', '-1'), undefined],
  ['a count of zero', event('b', '0'), 'b'],
  ['a count that begins with zero', event('b', '007'), undefined],
  ['a count of two zeros', event('b', '00'), undefined],
  ['an escape that is none', event('\\x'), undefined],
  ['half an escape', event('\\u12'), undefined],
  ['a line break', event('a\nb'), undefined],
  ['a member more', event('a', '1', ',"x": 1'), undefined],
  ['a part more', event('a"},{"text": "b'), undefined],
  ['a signature', event('a","thoughtSignature": "c2ln'), undefined],
  ['a thought', event('a').replace('{"text"', '{"thought": true,"text"'), undefined],
  ['another candidate', event('a').replace('"index": 0', '"index": 1'), undefined],
  ['an end', event('a').replace('"index": 0', '"finishReason": "STOP","index": 0'), undefined],
  ['another spelling', event('a').replaceAll(': ', ':'), undefined],
  ['something behind', `${event('a')} `, undefined],
  ['half of it', event('a').slice(0, -1), undefined],
  ['only its begin', event('a').slice(0, 50), undefined],
  ['nothing', '', undefined],
];

for (const [name, given, text] of EVENTS)
  void t.test(name, (t) => {
    t.equal(template.textIn(given), text);
    t.end();
  });

interface Parsed {
  candidates: { content: { parts: { text: string }[] } }[];
}
/** The event without its text and its counts, which alone may differ. */
const restOf = (json: string): string =>
  JSON.stringify(JSON.parse(json), (name, value: unknown) =>
    name === 'text' || /[Tt]okenCount$/.test(name) ? null : value,
  );

/** Fails if the event matches, but is no JSON with that text and the members of the learned event. */
function checkMatch(t: Tap, changed: string): void {
  const text = template.textIn(changed);
  if (text === undefined) return;
  const parsed = JSON.parse(changed) as Parsed;
  if (JSON.parse(`"${text}"`) !== parsed.candidates[0]!.content.parts[0]!.text || restOf(changed) !== REST)
    t.fail(changed);
}
const REST = restOf(event('a'));
const INSERTED = ['"', '\\', '}', '{', ',', ':', '0', '7', '-', '.', 'e', ' ', '\n', 'u', '"text": "'];

void t.test('each edit does not match, or is JSON with that text and the same members', (t) => {
  for (const whole of [event('ab'), event('\\u00e9', '10')])
    for (let at = 0; at <= whole.length; at++) {
      t.equal(at === whole.length ? undefined : template.textIn(whole.slice(0, at)), undefined);
      checkMatch(t, whole.slice(0, at) + whole.slice(at + 1));
      for (const characters of INSERTED) {
        checkMatch(t, whole.slice(0, at) + characters + whole.slice(at + 1));
        checkMatch(t, whole.slice(0, at) + characters + whole.slice(at));
      }
    }
  t.end();
});

void t.test('so does each of many random edits', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const below = randomBelow(seed);
  for (let round = 0; round < 50_000; round++) {
    let changed = event('ab', '10');
    for (let edits = below(4); edits >= 0; edits--) {
      const at = below(changed.length + 1);
      changed = changed.slice(0, at) + INSERTED[below(INSERTED.length)]! + changed.slice(at + below(3));
    }
    checkMatch(t, changed);
  }
  t.end();
});

void t.test('what has no single text is not learned', (t) => {
  for (const given of [
    '{"text": 5}',
    '{"a": {"text": "x"},"candidates": [{"text": "y"}]}',
    event('a', '1', `,"x": "${'x'.repeat(4_096)}"`),
    '{"text": "x',
  ]) {
    const other = new TextTemplate();
    other.learn(given);
    t.equal(other.textIn(given), undefined);
  }
  t.end();
});

void t.test('a stream whose events are all different is not learned forever', (t) => {
  const other = new TextTemplate();
  for (let index = 0; index < 16; index++) other.learn(event('a', '1', `,"x": ${index}`));
  other.learn(event('a'));
  t.equal(other.textIn(event('a')), undefined);
  t.equal(other.textIn(event('a', '1', ',"x": 15')), 'a');
  other.learn(event('a'));
  t.equal(other.textIn(event('b')), 'b', 'one that matched is reason enough');
  t.end();
});
