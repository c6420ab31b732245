/** Events that differ in their text and their counts alone are known without parsing, and no others. */
import t from 'tap';
import { TextTemplate } from '#src/providers/gemini/text-template.js';

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

void t.test('every cut, and every other character, does not match or is JSON with that text', (t) => {
  const whole = event('ab');
  for (let at = 0; at < whole.length; at++) {
    t.equal(template.textIn(whole.slice(0, at)), undefined);
    for (const character of ['"', '\\', '}', '0', ' ']) {
      const changed = whole.slice(0, at) + character + whole.slice(at + 1);
      const text = template.textIn(changed);
      if (text === undefined) continue;
      const parsed = JSON.parse(changed) as { candidates: { content: { parts: { text: string }[] } }[] };
      t.equal(JSON.parse(`"${text}"`), parsed.candidates[0]!.content.parts[0]!.text, changed);
    }
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
