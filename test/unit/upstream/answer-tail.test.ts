/** The members at the end of an answer are those that parsing all of it gives. */
import t from 'tap';
import { membersFromUsage } from '#src/upstream/answer-tail.js';
import { newSeed, pick, random as randomOf, type Random } from '../../support/protocol-values.js';

const USAGE = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 };
const CHOICES = [{ index: 0, message: { role: 'assistant', content: 'hello' }, finish_reason: 'stop' }];

const read = (text: string) => membersFromUsage(Buffer.from(text));

void t.test('an answer as providers write it', (t) => {
  const answer = { id: 'x', choices: CHOICES, usage: USAGE, system_fingerprint: null, model: 'm' };
  const members = { usage: USAGE, system_fingerprint: null, model: 'm' };
  t.same(read(JSON.stringify(answer)), members);
  t.same(read(JSON.stringify(answer, null, 2)), members);
  t.same(read(`${JSON.stringify(answer, null, '\t').replaceAll('\n', '\r\n')}\r\n`), members);
  t.end();
});

void t.test('where all must be parsed', (t) => {
  const usage = JSON.stringify(USAGE);
  const choices = JSON.stringify(CHOICES);
  for (const [why, text] of [
    ['no usage', `{"choices":${choices}}`],
    ['no choices', `{"id":"x","usage":${usage}}`],
    ['choices that are no list', `{"choices":{},"usage":${usage}}`],
    ['choices behind it', `{"id":"x","usage":${usage},"choices":${choices}}`],
    ['usage of a choice', `{"choices":[{"index":0,"usage":${usage}}]}`],
    ['usage within a member', `{"choices":${choices},"x":{"y":1,"usage":${usage}}}`],
    ['usage within the last of several', `{"choices":${choices},"usage":${usage},"x":[{"y":1,"usage":{}}]}`],
    ['usage as a text', `{"choices":${choices},"x":["y","usage"]}`],
    ['cut short', `{"choices":${choices},"usage":${usage}`],
    ['more behind', `{"choices":${choices},"usage":${usage}}}`],
    ['two objects', `{"choices":${choices},"usage":${usage}}{}`],
    ['no object', `[{"choices":${choices}},"usage"]`],
    ['usage alone', `{"usage":${usage}}`],
    ['a long end', `{"choices":${choices},"usage":${usage},"x":"${'x'.repeat(5_000)}"}`],
    ['nothing', ''],
    ['the word alone', '"usage"'],
  ] as const)
    t.equal(read(text), undefined, why);
  t.end();
});

void t.test('whatever an answer holds', (t) => {
  const seed = newSeed();
  const next = randomOf(seed);
  let taken = 0;
  for (let count = 0; count < 20_000; count++) {
    const text = JSON.stringify(anyAnswer(next), null, pick(next, [0, 1, '\t']));
    const members = read(text);
    if (members === undefined) continue;
    taken++;
    const whole = JSON.parse(text) as Record<string, unknown>;
    if (JSON.stringify(members.usage) !== JSON.stringify(whole.usage)) t.fail(`seed ${seed}: ${text}`);
  }
  t.ok(taken > 2_000, `${taken} were read from their end`);
  t.end();
});

/** Members of all kinds in any order, with the words that are looked for in texts, names and depths. */
function anyAnswer(next: Random): unknown {
  const text = (): string =>
    Array.from({ length: 4 }, () =>
      pick(next, ['"usage"', '"usage":{', '\\', '"choices":[', '}', ']', ',', 'é😀', 'usage', '\n']),
    ).join('');
  const name = (): string => pick(next, ['usage', 'choices', 'model', 'x', text()]);
  const value = (depth: number): unknown => {
    const kind = Math.floor(next() * (depth > 2 ? 3 : 5));
    if (kind === 0) return text();
    if (kind === 1) return pick(next, [1, null, true, USAGE]);
    if (kind === 2) return USAGE;
    if (kind === 3) return [value(depth + 1), value(depth + 1)];
    return { [name()]: value(depth + 1), [name()]: value(depth + 1) };
  };
  const members: [string, unknown][] = Array.from({ length: 3 }, () => [name(), value(0)]);
  if (next() < 0.8) members.splice(Math.floor(next() * 3), 0, ['choices', CHOICES]);
  if (next() < 0.8) members.splice(Math.floor(next() * 5), 0, ['usage', USAGE]);
  return Object.fromEntries(members);
}
