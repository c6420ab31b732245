/** Runs of plain events: found whole, ended by what tells something or looks otherwise, in linear time. */
import t from 'tap';
import { PlainEvents } from '#src/upstream/plain-events.js';

const TEXT = 'data: {"choices":[{"delta":{"content":"é"}}],"usage":null}\n\n';
const FINISH = 'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n';
const ODD = [': comment\n\n', 'event: x\ndata: {}\n\n', 'data: {}\r\n\r\n', 'data: [1]\n\n', 'data: {\n\n'];

/** Ends of the runs when each event that is not plain is stepped over. */
function runsOf(events: readonly string[]): [number, number][] {
  const bytes = Buffer.from(events.join(''));
  const starts = [0];
  for (const event of events) starts.push(starts.at(-1)! + Buffer.byteLength(event));
  const plain = new PlainEvents(bytes);
  const runs: [number, number][] = [];
  let from = 0;
  while (from < bytes.length) {
    const end = plain.endFrom(from);
    runs.push([starts.indexOf(from), starts.indexOf(end)]);
    from = end === bytes.length ? end : starts[starts.indexOf(end) + 1]!;
  }
  return runs;
}

void t.test('a run ends before the first event that tells something', (t) => {
  t.same(runsOf([TEXT]), [[0, 1]]);
  t.same(runsOf([TEXT, TEXT, TEXT]), [[0, 3]]);
  t.same(runsOf([FINISH]), [[0, 0]]);
  t.same(runsOf([TEXT, TEXT, FINISH, 'data: [DONE]\n\n']), [
    [0, 2],
    [3, 3],
  ]);
  t.same(runsOf([FINISH, TEXT, TEXT, FINISH, TEXT]), [
    [0, 0],
    [1, 3],
    [4, 5],
  ]);
  t.end();
});

void t.test('a run ends before what has another form', (t) => {
  for (const odd of ODD) {
    t.same(
      runsOf([TEXT, odd, TEXT, TEXT]),
      [
        [0, 1],
        [2, 4],
      ],
      JSON.stringify(odd),
    );
    t.same(runsOf([odd]), [[0, 0]], JSON.stringify(odd));
  }
  t.end();
});

void t.test('the cost is linear where each event tells something', (t) => {
  const millisOf = (count: number): number => {
    const bytes = Buffer.from(FINISH.repeat(count));
    const beforeMs = performance.now();
    const plain = new PlainEvents(bytes);
    for (let from = 0; from < bytes.length; from += FINISH.length) {
      if (plain.endFrom(from) !== from) throw new Error('no such event is plain');
    }
    return performance.now() - beforeMs;
  };
  millisOf(1_000);
  const fewMs = Math.min(millisOf(1_000), millisOf(1_000), millisOf(1_000));
  const manyMs = Math.min(millisOf(32_000), millisOf(32_000), millisOf(32_000));
  // 32 times as many cost 32 times as much, and were they looked at again for each of them 1,024 times.
  t.ok(manyMs < 256 * fewMs, `${manyMs} ms for 32,000 against ${fewMs} ms for 1,000`);
  t.end();
});
