import t from 'tap';
import { checkedTraceState, parseTraceParent, traceParentText } from '#src/telemetry/trace-context.js';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';

void t.test('a valid traceparent is read and written again', (t) => {
  for (const [flags, kept] of [
    ['00', 0],
    ['01', 1],
    ['02', 2],
    ['03', 3],
    ['ff', 3],
  ] as const) {
    const parent = parseTraceParent(`00-${TRACE}-${SPAN}-${flags}`);
    t.same(parent, { traceId: TRACE, spanId: SPAN, flags: kept }, flags);
    t.equal(traceParentText(parent!), `00-${TRACE}-${SPAN}-0${kept}`);
  }
  t.end();
});

void t.test('a later version may say more', (t) => {
  const read = { traceId: TRACE, spanId: SPAN, flags: 1 };
  t.same(parseTraceParent(`01-${TRACE}-${SPAN}-01`), read);
  t.same(parseTraceParent(`cc-${TRACE}-${SPAN}-01-what-comes-then`), read);
  t.equal(parseTraceParent(`cc-${TRACE}-${SPAN}-01.what`), undefined, 'after a dash');
  t.equal(parseTraceParent(`cc-${TRACE}-${SPAN}-01-${'x'.repeat(300)}`), undefined, 'and not without end');
  t.end();
});

void t.test('what is not valid is nothing', (t) => {
  for (const text of [
    '',
    '00',
    `00-${TRACE}-${SPAN}`,
    `00-${TRACE}-${SPAN}-`,
    `00-${TRACE}-${SPAN}-1`,
    `00-${TRACE}-${SPAN}-001`,
    `00-${TRACE}-${SPAN}-01-`,
    `00-${TRACE}-${SPAN}-01-more`,
    `00-${TRACE}-${SPAN}-0x`,
    `0-${TRACE}-${SPAN}-01`,
    `ff-${TRACE}-${SPAN}-01`,
    `FF-${TRACE}-${SPAN}-01`,
    `.0-${TRACE}-${SPAN}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${TRACE}-${SPAN.toUpperCase()}-01`,
    `00-${TRACE}-${SPAN}-0A`,
    `00-${'0'.repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${'0'.repeat(16)}-01`,
    `00-${TRACE.slice(1)}-${SPAN}-01`,
    `00-${TRACE}0-${SPAN}-01`,
    `00-${TRACE}-${SPAN.slice(1)}-01`,
    `00_${TRACE}_${SPAN}_01`,
    ` 00-${TRACE}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-01 `,
    `00-${TRACE}-${SPAN}-01\n`,
    `00-${TRACE.slice(1)}é-${SPAN}-01`,
  ])
    t.equal(parseTraceParent(text), undefined, JSON.stringify(text));
  t.end();
});

void t.test('a tracestate is taken whole or not at all', (t) => {
  const members = (count: number) => Array.from({ length: count }, (_, index) => `k${index}=v`).join(',');
  for (const [text, kept] of [
    ['', ''],
    ['a=1', 'a=1'],
    ['a=1, b=2\t,,c=3', 'a=1,b=2,c=3'],
    ['a=b c', 'a=b c'],
    ['a_-*/0=!~', 'a_-*/0=!~'],
    ['0t@sys=1', '0t@sys=1'],
    [members(32), members(32)],
    [members(33), ''],
    [`a=${'x'.repeat(256)}`, `a=${'x'.repeat(256)}`],
    [`a=${'x'.repeat(257)}`, ''],
    [`${'a'.repeat(256)}=x`, `${'a'.repeat(256)}=x`],
    [`${'a'.repeat(257)}=x`, ''],
    [`a=${'x'.repeat(250)},b=${'y'.repeat(250)},c=${'z'.repeat(20)}`, ''],
    ['a=1,a=2', ''],
    ['A=1', ''],
    ['0a=1', ''],
    ['a@=1', ''],
    ['a@0=1', ''],
    ['a', ''],
    ['=1', ''],
    ['a=', ''],
    ['a=1=2', ''],
    ['a=é', ''],
    ['a=1\r\nx-injected: 1', ''],
  ] as const)
    t.equal(checkedTraceState(text), kept, JSON.stringify(text));
  t.end();
});
