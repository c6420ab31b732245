/** When the breaker opens, whom it lets through, and when it closes; with every edge from both sides. */
import t from 'tap';
import { asAccountIndex, asMonotonicMs } from '#src/core/units.js';
import { Breaker, type BreakerPass } from '#src/upstream/breaker.js';

/** Whose calls they are, if nothing else is said. */
const FIRST = asAccountIndex(1);
const SECOND = asAccountIndex(2);
const THIRD = asAccountIndex(3);

class Bench {
  nowMs = 50_000;
  readonly changes: string[] = [];
  readonly breaker: Breaker;

  constructor(failuresMax: number) {
    this.breaker = new Breaker(failuresMax, (change, restMs) => this.changes.push(`${change} ${restMs}`));
  }

  get now() {
    return asMonotonicMs(this.nowMs);
  }

  get restMs(): number {
    return this.breaker.waitMs(this.now, FIRST);
  }

  begin(): BreakerPass {
    return this.breaker.begin(this.now, FIRST);
  }

  fail(count = 1): void {
    for (let index = 0; index < count; index++) this.breaker.recordFailure(this.begin(), this.now, FIRST);
  }

  succeed(count = 1): void {
    for (let index = 0; index < count; index++) this.breaker.recordSuccess(this.begin(), this.now);
  }
}

void t.test('failures in a row: the last one opens it', (t) => {
  const bench = new Bench(3);
  bench.fail(2);
  t.equal(bench.restMs, 0);
  bench.fail();
  t.equal(bench.restMs, 2_000);
  t.strictSame(bench.changes, ['opened 2000']);
  t.end();
});

void t.test('failures in a row count however far apart', (t) => {
  const bench = new Bench(3);
  for (let count = 0; count < 3; count++) {
    t.equal(bench.restMs, 0);
    bench.fail();
    bench.nowMs += 3_600_000;
  }
  t.strictSame(bench.changes, ['opened 2000']);
  t.end();
});

void t.test('a share of failures: half of the calls open it, less than half never', (t) => {
  const half = new Bench(5);
  for (let count = 0; count < 4; count++) {
    half.succeed();
    half.fail();
  }
  t.equal(half.restMs, 0, 'half, but too few');
  half.succeed();
  half.fail();
  t.equal(half.restMs, 2_000);
  const less = new Bench(5);
  for (let count = 0; count < 100; count++) {
    less.succeed(2);
    less.fail();
  }
  t.strictSame(less.changes, []);
  t.end();
});

void t.test('the window forgets: failures of 10 s ago do not count, of 5 s ago they do', (t) => {
  for (const [pauseMs, opens] of [
    [4_999, true],
    [5_000, true],
    [9_999, true],
    [10_000, false],
    [1e9, false],
  ] as const) {
    const bench = new Bench(4);
    for (let count = 0; count < 3; count++) {
      bench.fail();
      bench.succeed();
    }
    bench.nowMs += pauseMs;
    bench.fail();
    t.equal(bench.restMs > 0, opens, `after ${pauseMs} ms`);
  }
  t.end();
});

void t.test('0: it never opens', (t) => {
  const bench = new Bench(0);
  bench.fail(1_000);
  t.strictSame(bench.changes, []);
  t.end();
});

void t.test('one probe; each that fails doubles the rest, up to a minute', (t) => {
  const bench = new Bench(1);
  bench.fail();
  for (const restMs of [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]) {
    bench.nowMs += restMs - 1;
    t.equal(bench.restMs, 1);
    bench.nowMs += 1;
    t.equal(bench.restMs, 0);
    const probe = bench.begin();
    t.ok(bench.restMs > 0, 'nobody beside the probe');
    bench.breaker.recordFailure(probe, bench.now, FIRST);
  }
  bench.nowMs += 60_000;
  bench.succeed();
  t.equal(bench.restMs, 0);
  t.equal(bench.changes.at(-1), 'closed 0');
  bench.fail();
  t.equal(bench.restMs, 2_000, 'and the next rest is short again');
  t.end();
});

void t.test('a probe without an answer is followed by another; one that was cancelled at once', (t) => {
  const bench = new Bench(1);
  bench.fail();
  bench.nowMs += 2_000;
  const silent = bench.begin();
  t.equal(bench.restMs, 2_000);
  bench.nowMs += 2_000;
  const cancelled = bench.begin();
  bench.breaker.recordFailure(silent, bench.now, FIRST);
  t.strictSame(bench.changes, ['opened 2000'], 'the first one is not heard any more');
  bench.breaker.recordNoOutcome(cancelled, bench.now);
  t.equal(bench.restMs, 0);
  const answered = bench.begin();
  bench.breaker.recordResponseBegin(answered);
  t.equal(bench.restMs, 0);
  bench.breaker.recordFailure(answered, bench.now, FIRST);
  t.strictSame(bench.changes, ['opened 2000', 'closed 0'], 'what a call of another state says is not heard');
  t.end();
});

void t.test('calls that began before it opened change nothing', (t) => {
  const bench = new Bench(2);
  const early = [bench.begin(), bench.begin(), bench.begin()];
  bench.fail(2);
  bench.breaker.recordSuccess(early[0]!, bench.now);
  bench.breaker.recordFailure(early[1]!, bench.now, FIRST);
  bench.breaker.recordNoOutcome(early[2]!, bench.now);
  t.equal(bench.restMs, 2_000);
  t.strictSame(bench.changes, ['opened 2000']);
  t.end();
});

void t.test("one account's failures close the upstream to that account alone", (t) => {
  const { breaker, ...bench } = new Bench(3);
  const now = asMonotonicMs(bench.nowMs);
  const call = (account: typeof FIRST, goesWell: boolean): void => {
    const pass = breaker.begin(now, account);
    if (goesWell) breaker.recordSuccess(pass, now);
    else breaker.recordFailure(pass, now, account);
  };
  for (let count = 0; count < 3; count++) call(FIRST, false);
  t.strictSame(
    [FIRST, SECOND].map((account) => [breaker.waitMs(now, account), breaker.lastResortWaitMs(now, account)]),
    [
      [2_000, 2_000],
      [0, 0],
    ],
  );
  // Another's good calls neither close it for the first nor are they probes.
  for (let count = 0; count < 9; count++) call(SECOND, true);
  t.equal(breaker.waitMs(now, FIRST), 2_000);
  call(SECOND, false);
  t.equal(breaker.waitMs(now, THIRD), 0, 'one failure among good calls');
  call(THIRD, false);
  call(SECOND, false);
  t.equal(breaker.waitMs(now, THIRD), 2_000, 'as many in a row');
  t.strictSame(bench.changes, ['opened 2000', 'opened 2000']);
  t.end();
});

void t.test('an upstream that is down is closed to all with the first failure of another account', (t) => {
  const bench = new Bench(3);
  bench.fail(3);
  bench.breaker.recordFailure(bench.breaker.begin(bench.now, SECOND), bench.now, SECOND);
  t.equal(bench.breaker.waitMs(bench.now, THIRD), 2_000);
  bench.nowMs += 2_000;
  bench.breaker.recordSuccess(bench.breaker.begin(bench.now, THIRD), bench.now);
  t.strictSame(bench.changes, ['opened 2000', 'opened 2000', 'closed 0']);
  t.equal(bench.restMs, 0);
  t.end();
});

void t.test('failures of several accounts close it to all at once', (t) => {
  for (const inARow of [true, false]) {
    const bench = new Bench(4);
    const { breaker } = bench;
    for (const account of [FIRST, FIRST, SECOND, FIRST]) {
      if (!inARow) breaker.recordSuccess(breaker.begin(bench.now, THIRD), bench.now);
      breaker.recordFailure(breaker.begin(bench.now, account), bench.now, account);
    }
    t.equal(breaker.waitMs(bench.now, THIRD), 2_000, `in a row: ${inARow}`);
  }
  t.end();
});

void t.test('after its probe has closed it an account counts anew', (t) => {
  const bench = new Bench(3);
  bench.fail(3);
  const other = bench.breaker.begin(bench.now, SECOND);
  bench.nowMs += 2_000;
  bench.succeed();
  bench.breaker.recordFailure(other, bench.now, SECOND);
  bench.fail(2);
  t.equal(bench.restMs, 0, 'the call that began before counts no more');
  bench.fail();
  t.equal(bench.restMs, 2_000);
  t.end();
});
