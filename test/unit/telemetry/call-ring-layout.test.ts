/**
 * No two fields of the call ring overlap. A round trip cannot show that: writer and reader would share the
 * wrong constant.
 */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { DOOR_NAMES } from '#src/core/door-names.js';
import { CALLS_IN_FLIGHT_MAX, CALLS_PER_DAY_MAX, REQUESTS_PER_MINUTE_MAX } from '#src/core/limits.js';
import { FIELDS_AT } from '#src/core/spsc-ring.js';
import * as layout from '#src/telemetry/call-ring-layout.js';

/** What begins a list of fields, and a field in it. */
const LIST = /^\/\/ Fields of (64|32) bits of a (plain )?call/;
const FIELD = /^export const (\w+) = \d+;/;
const constants = layout as Readonly<Record<string, unknown>>;

void t.test('the fields of a record leave no gap', (t) => {
  const endBytes = { '': 0, 'plain ': 0 };
  let record: keyof typeof endBytes = '';
  /** Of the list that is read; 0 outside of a list. */
  let bytes = 0;
  for (const line of readFileSync('src/telemetry/call-ring-layout.ts', 'utf8').split('\n')) {
    const [, bits, kind = ''] = LIST.exec(line) ?? [];
    const [, name] = FIELD.exec(line) ?? [];
    if (bits !== undefined) {
      bytes = Number(bits) / 8;
      record = kind as keyof typeof endBytes;
    } else if (name === undefined) {
      bytes = 0;
    } else if (bytes > 0) {
      t.equal(
        Number(constants[name]) * bytes,
        endBytes[record],
        `${name} begins where the field before ends`,
      );
      endBytes[record] += bytes;
    }
  }
  t.equal(FIELDS_AT + endBytes[''], layout.RECORD_BYTES, 'the record ends with its last field');
  t.equal(FIELDS_AT + endBytes['plain '], layout.PLAIN_BYTES, 'and so does that of a plain call');
  t.end();
});

void t.test('the words of an attempt follow its two floats', (t) => {
  const { ATTEMPT_UPSTREAM, ATTEMPT_MODEL, ATTEMPT_STATUS, ATTEMPT_CODE, ATTEMPT_TEXT_BYTES } = layout;
  const words = [ATTEMPT_UPSTREAM, ATTEMPT_MODEL, ATTEMPT_STATUS, ATTEMPT_CODE, ATTEMPT_TEXT_BYTES];
  t.same(words, [4, 5, 6, 7, 8]);
  t.equal(layout.ATTEMPT_BYTES, 4 * (words.length + 4 + 1), 'with 4 unused bytes');
  t.end();
});

void t.test('what is left of a quota with a field of its own fits 32 bits', (t) => {
  const limitMax = Math.max(REQUESTS_PER_MINUTE_MAX, CALLS_IN_FLIGHT_MAX, CALLS_PER_DAY_MAX);
  t.ok(limitMax <= layout.PLAIN_NUMBER_MAX);
  t.end();
});

void t.test('flags, door and source share a word without overlap', (t) => {
  const { STREAM, BEGUN, CACHE_HIT, CACHE_MISS, LOGGED, STORED, DOOR_SHIFT, DOOR_MASK, SOURCE_SHIFT } =
    layout;
  t.same([STREAM, BEGUN, CACHE_HIT, CACHE_MISS, LOGGED, STORED], [1, 2, 4, 8, 16, 32]);
  t.ok(STORED < 1 << DOOR_SHIFT);
  t.equal((DOOR_MASK << DOOR_SHIFT) + (1 << DOOR_SHIFT), 1 << SOURCE_SHIFT);
  t.ok(DOOR_NAMES.length <= DOOR_MASK + 1, 'each door fits');
  t.end();
});
