/** Ids of tool calls, as servers of all kinds make them, in the form that Claude and Converse accept. */
import t from 'tap';
import { ToolIds } from '#src/providers/anthropic/tool-ids.js';

const ALLOWED = /^[a-zA-Z0-9_-]{1,64}$/;
const ODD = ['', '_', '__proto__', 'functions.f:0', 'functions_f_0', 'ü', 'x'.repeat(64), 'x'.repeat(5_000)];

void t.test('ids that are allowed stay', (t) => {
  const ids = new ToolIds();
  for (const id of ['toolu_01A', 'call_1', 'a-b', '9', '__proto__', 'constructor']) {
    t.equal(ids.ofCall(id), id);
    t.equal(ids.ofResult(id), id);
  }
  t.end();
});

void t.test('an id for each call, whatever ids came, and its result has the same', (t) => {
  const ids = new ToolIds();
  const seen = new Set<string>();
  for (let turn = 0; turn < 3; turn++) {
    // Each id twice in a turn: the results come in the order of the calls.
    const calls = [...ODD, ...ODD].map((id) => [id, ids.ofCall(id)] as const);
    for (const [id, newId] of calls) {
      t.match(newId, ALLOWED, id);
      t.equal(ids.ofResult(id), newId);
      seen.add(newId);
    }
  }
  t.equal(seen.size, 6 * ODD.length);
  t.end();
});

void t.test('an id that looks like a numbered one', (t) => {
  const ids = new ToolIds();
  t.same(
    ['a', 'a', 'a_2', 'a', 'a_2'].map((id) => ids.ofCall(id)),
    ['a', 'a_2', 'a_2_2', 'a_3', 'a_2_3'],
  );
  t.end();
});

void t.test('a result without a call, and a second one, have ids that Claude rejects as such', (t) => {
  const ids = new ToolIds();
  t.equal(ids.ofResult('a:1'), 'a_1');
  t.equal(ids.ofCall('a'), 'a');
  t.equal(ids.ofResult('a'), 'a');
  t.equal(ids.ofResult('a'), 'a');
  t.equal(ids.ofCall('a'), 'a_2');
  t.equal(ids.ofResult('a'), 'a_2', 'the next one is right again');
  t.equal(ids.ofResult('a'), 'a_2');
  t.equal(ids.ofResult('a'), 'a_2');
  t.same([ids.ofCall('a'), ids.ofCall('a')], ['a_3', 'a_4']);
  t.same([ids.ofResult('a'), ids.ofResult('a')], ['a_3', 'a_4'], 'however many were too many');
  t.end();
});

void t.test('many calls of one id', (t) => {
  const ids = new ToolIds();
  let lastId = '';
  for (let call = 0; call < 50_000; call++) lastId = ids.ofCall('call_0');
  t.equal(lastId, 'call_0_50000');
  for (let call = 1; call < 50_000; call++) ids.ofResult('call_0');
  t.equal(ids.ofResult('call_0'), 'call_0_50000');
  t.end();
});
