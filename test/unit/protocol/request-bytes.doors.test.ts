/**
 * At each door: a body is read alike whether it is small or large, in one piece or in many; what was read
 * refers to no memory of the body; and there is one model, which the first piece tells if it has it.
 */
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { DOORS } from '#src/doors/doors.js';
import type { ChatCall, ChatRequestResult, Span } from '#src/protocol/chat-call.js';
import { modelInFirstPiece } from '#src/protocol/request-bytes.js';
import { DOOR_BODIES } from '../../support/door-bodies.js';
import { newSeed, pick, randomBelow, randomOf } from '../../support/random.js';

/** Members of a request, valid and not, some of them at some doors alone. */
const MORE: readonly object[] = [
  ...[{ stream: true }, { stream: false }, { stream: null }, { stream: 1 }, { stream_options: null }],
  ...[{ stream_options: {} }, { stream_options: { include_usage: true } }, { stream_options: { other: 1 } }],
  ...[{ stream_options: { include_usage: false } }, { max_tokens: 7 }, { max_tokens: 0 }, { max_tokens: -1 }],
  ...[{ max_tokens: null }, { max_completion_tokens: 9 }, { max_output_tokens: 99 }, { n: 2 }, { n: 1.5 }],
  ...[
    { temperature: 1 },
    { user: 'é汉🚀' },
    { model: 'é' },
    { model: '' },
    { best_of: 2 },
    { models: ['a'] },
  ],
  ...[{ service_tier: 'priority' }, { input: [] }, { messages: [] }, { unknown: { deep: [1, 'ü'] } }],
];
const LETTERS = ['x', 'é', '汉', '🚀'];

/** The call with texts in place of positions, so that calls of both forms can be compared. */
function plain(call: ChatCall): object {
  const { body, largeBody, model, modelStart, modelEnd, maxTokens, maxCompletionTokens, bodyEnd, ...same } =
    call;
  const at = ({ start, end }: Span): string =>
    largeBody === undefined ? body.slice(start, end) : Buffer.from(largeBody).toString('utf8', start, end);
  return {
    ...same,
    text: largeBody === undefined ? body : Buffer.from(largeBody).toString(),
    model: [model, JSON.parse(at({ start: modelStart, end: modelEnd }))],
    outputBounds: [at(maxTokens), at(maxCompletionTokens)],
    lastBrace: at({ start: bodyEnd, end: bodyEnd + 1 }),
  };
}

const outcomeOf = (read: ChatRequestResult): object => (read.ok ? plain(read.call) : read.error);

/** What `read` finds in a copy of the bytes, which must stay when other bytes are written to the copy. */
function found(bytes: Buffer, read: (bytes: Buffer) => ChatRequestResult): object {
  const copy = Buffer.from(bytes);
  const result = read(copy);
  const outcome = outcomeOf(result);
  copy.fill('!');
  if (!isDeepStrictEqual(outcomeOf(result), outcome)) throw new Error(`changed: ${textOf(bytes)}`);
  return outcome;
}

const textOf = (bytes: Buffer): string => bytes.toString().slice(0, 300);

for (const door of DOORS)
  void t.test(`${door.name}: in whatever pieces a body comes, and whatever becomes of their memory`, (t) => {
    const seed = newSeed();
    t.comment(`TOLLGATE_TEST_SEED=${seed}`);
    const next = randomOf(seed);
    const below = randomBelow(seed);
    let accepted = 0;
    for (let round = 0; round < 300; round++) {
      const members = [DOOR_BODIES[door.name], pick(next, MORE), pick(next, MORE), pick(next, MORE)].sort(
        () => next() - 0.5,
      );
      const padding = pick(next, LETTERS).repeat(pick(next, [0, 1, 4_000]));
      const text = JSON.stringify(Object.assign({}, ...members, padding === '' ? {} : { padding }));
      const whole = Buffer.from(pick(next, [text, text, ` \n${text}\t `, text.slice(0, below(text.length))]));
      const expected = found(whole, (bytes) => door.read(bytes));
      const cut = below(whole.length + 1);
      const inPieces = found(whole, (bytes) =>
        door.readPieces([bytes.subarray(0, cut), bytes.subarray(cut)]),
      );
      if ('model' in expected) {
        accepted += 1;
        const [model] = expected.model as [string];
        const first = modelInFirstPiece(whole.subarray(0, cut));
        if (first !== undefined && first !== model) t.fail(`${first} at first, then ${model}`);
        if (modelInFirstPiece(whole) !== model) t.fail(`not found: ${textOf(whole)}`);
      }
      if (!isDeepStrictEqual(inPieces, expected)) t.strictSame(inPieces, expected, textOf(whole));
    }
    t.ok(accepted > 30, `${accepted} of them are calls`);
    t.end();
  });

void t.test('a second model is rejected at each door, however its name is written', (t) => {
  const names = ['model', 'Model', 'MODEL', 'mod\\u0065l', 'mod\\u0045l', '\\u006dodel'];
  for (const door of DOORS) {
    const text = JSON.stringify(DOOR_BODIES[door.name]);
    for (const name of names)
      for (const body of [
        `${text.slice(0, -1)},"${name}":"other"}`,
        `{"${name}":"other",${text.slice(1)}`,
        `${text.slice(0, -1)},"padding":"${'x'.repeat(5_000)}","${name}":"other"}`,
      ])
        for (const read of [door.read(Buffer.from(body)), door.readPieces([Buffer.from(body)])])
          if (read.ok || !/model/i.test(read.error.message)) t.fail(`${door.name}: ${body.slice(0, 300)}`);
  }
  t.end();
});
