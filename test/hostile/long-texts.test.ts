/**
 * Work on what callers and upstreams send grows with its length, and not with the square of it: else one
 * request or response of a few hundred kilobytes holds up all calls of a thread.
 */
import t, { type Test } from 'tap';
import { FieldError, ProviderError } from '#src/providers/provider.js';
import { PROVIDERS } from '#src/providers/providers.js';
import { longText } from '../support/long-texts.js';
import { ERROR_FORMS } from '../support/provider-errors.js';
import { callOf, FORMS } from '../support/provider-forms.js';

/** A long text has fifty runs of so many characters, a list a quarter as many items. */
const SIZE = 8_192;
/** What takes no longer at SIZE is quick enough: what grows with the square takes more. */
const QUICK_MS = 50;
/** Longer work is measured with a value that is longer so many times. */
const TIMES = 4;
/** Three times what it should grow, because collecting garbage takes its part. The square is 16. */
const GROWTH_MAX = 3 * TIMES;
const LONGEST_MS = 3_000;
const TRIES = 3;

/** Milliseconds of one run. Refusals are results: text that is no JSON, a member that nobody knows. */
function timeOf(work: () => unknown): number {
  const startMs = performance.now();
  try {
    work();
  } catch (error) {
    if (!(error instanceof FieldError || error instanceof ProviderError)) throw error;
  }
  return performance.now() - startMs;
}

/** `workOn` makes a value of that size, which is not timed, and returns the work on it. */
function judge(t: Test, name: string, workOn: (size: number) => () => unknown): void {
  // Other work on this machine adds to a time and never takes from it, so the shortest counts.
  let shortMs = Infinity;
  for (let tries = 0; tries < TRIES; tries++) {
    shortMs = Math.min(shortMs, timeOf(workOn(SIZE)));
    if (shortMs <= QUICK_MS) return;
  }
  const longMs = Math.min(timeOf(workOn(TIMES * SIZE)), timeOf(workOn(TIMES * SIZE)));
  const times = `${shortMs.toFixed(1)} ms, ${longMs.toFixed(1)} ms for ${TIMES} times the length`;
  if (longMs > LONGEST_MS || longMs > GROWTH_MAX * shortMs) t.fail(`${name}: ${times}`);
}

const user = (content: unknown): object => ({ role: 'user', content });
const result = (content: string): object => ({ role: 'tool', tool_call_id: 'call_1', content });
const called = (text: string): object => ({
  role: 'assistant',
  content: null,
  tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'f', arguments: text } }],
});
const many = (count: number, one: object): object[] => Array.from({ length: count }, () => one);
const FILE = { type: 'file', file: { file_data: 'data:application/pdf;base64,JVBERi0xLjQ=' } };

/** Messages by their size. */
const REQUESTS: Readonly<Record<string, (size: number) => object[]>> = {
  'arguments of a tool': (size) => [user('a'), called(longText(size)), result('b')],
  'arguments that are cut': (size) => [user('a'), called(`{"a":${longText(size)}`), result('b')],
  'a result that is cut': (size) => [user('a'), called('{}'), result(`{"a":${longText(size)}`)],
  'files of one name': (size) => [user(many(size / 4, FILE))],
  'results behind texts': (size) => [
    ...[user('a'), called('{}')],
    ...many(size, user('b')),
    ...many(size, result('c')),
  ],
};

for (const form of FORMS) {
  const { name, provider, dialect } = form;
  const translator = PROVIDERS[provider]!;
  const call = callOf(form, { messages: [user('a')] });

  void t.test(name, (t) => {
    for (const [what, messagesOf] of Object.entries(REQUESTS))
      judge(t, what, (size) => {
        const asked = callOf(form, { messages: messagesOf(size) });
        return () => translator.write(asked);
      });
    for (const near of ['', '{"functionCall":', '{"toolUse":', '{"type":"tool_use",'])
      judge(t, `a response that is no JSON: ${near}`, (size) => {
        const body = Buffer.from(near + longText(size));
        return () => translator.readResponse(body, call);
      });
    const errors = ERROR_FORMS.get(dialect)!;
    const long = (size: number): string => errors.body(400, longText(size));
    judge(t, 'an error', (size) => {
      const body = long(size);
      return () => translator.readError(400, () => undefined, body);
    });
    judge(t, 'a header of an error', (size) => {
      const header = longText(size);
      return () => translator.readError(400, () => header, errors.body(400, 'why'));
    });
    judge(t, 'an error in a stream', (size) => {
      const frame = errors.frame(400, longText(size));
      return () => translator.openStream(call).push(frame);
    });
    judge(t, 'an error in a response', (size) => {
      const body = Buffer.from(long(size));
      return () => translator.readResponse(body, call);
    });
    t.pass('all were tried');
    t.end();
  });
}
