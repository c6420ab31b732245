/**
 * The constants of the call ring are what the tables in the header of its layout say, and no two fields
 * overlap. A round trip cannot show that: writer and reader would share the wrong constant.
 */
import { readFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { DOOR_NAMES } from '#src/core/door-names.js';
import { CALLS_IN_FLIGHT_MAX, CALLS_PER_DAY_MAX, REQUESTS_PER_MINUTE_MAX } from '#src/core/limits.js';
import { FIELDS_AT } from '#src/core/spsc-ring.js';
import * as layout from '#src/telemetry/call-ring-layout.js';

/** Of a table: where a field begins, its bits, its name, and those of fields of that width that follow it. */
const ROW = /^ \* +(\d+) +(64|32) +((?:\w+, )*\w+)/gm;
/** Numbers that are no offset of a field of a call. */
const NO_FIELD =
  /^(CALL|PLAIN_CALL|NOTHING|\w+_(BYTES|MAX|SHIFT|MASK)|STREAM|BEGUN|CACHE_HIT|CACHE_MISS|LOGGED|STORED|DROPPED\w*|UNSTORED)$/;
const constants = new Map(
  Object.entries(layout as Readonly<Record<string, unknown>>).filter(
    (entry): entry is [string, number] => typeof entry[1] === 'number',
  ),
);
const header = readFileSync('src/telemetry/call-ring-layout.ts', 'utf8').split('*/')[0]!;
const [callTable, plainTable] = header.split('A plain call goes only to the call log');

/** Checks a table, and returns the names of the constants of its fields. */
function checkedNames(t: Test, table: string, prefix: string, recordBytes: number): string[] {
  let endByte = 0;
  const names = [...table.matchAll(ROW)].flatMap(([, byte, bits, fields]) => {
    t.equal(Number(byte), endByte, `${fields} begin where the fields before end`);
    return fields!.split(', ').map((field) => {
      const bytes = Number(bits) / 8;
      const name = prefix + field.replaceAll(/[A-Z]|\d+h/g, '_$&').toUpperCase();
      t.equal(constants.get(name)! * bytes, endByte, `${name}, counted in words of ${bits} bits`);
      endByte += bytes;
      return name;
    });
  });
  t.equal(FIELDS_AT + endByte, recordBytes, 'the record ends with its last field');
  return names;
}

void t.test('the constants are those of the tables, and the fields leave no gap', (t) => {
  const names = [
    ...checkedNames(t, callTable!, '', layout.RECORD_BYTES),
    ...checkedNames(t, plainTable!, 'PLAIN_', layout.PLAIN_BYTES),
  ];
  const fields = [...constants.keys()].filter((name) => !name.startsWith('ATTEMPT_') && !NO_FIELD.test(name));
  t.same([...names].sort(), [...fields, 'ERROR_BYTES'].sort(), 'each constant is in a table');
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
