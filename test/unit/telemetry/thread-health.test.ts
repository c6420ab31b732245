/** How late the event loop is shown to be, and how often that wakes the thread. */
import t from 'tap';
import { createMetrics } from '#src/telemetry/metrics-layout.js';
import { MetricsReader } from '#src/telemetry/metrics-reader.js';
import { type EventLoop, ThreadHealth } from '#src/telemetry/thread-health.js';

class ScriptedLoop implements EventLoop {
  active = 0;
  looks = 0;
  /** How early timers fire. */
  earlyMs = 0;
  #nowMs = 1_000;
  #due: { atMs: number; act: () => void } | undefined;

  nowMs = (): number => this.#nowMs;
  activeShare = (): number => this.active;
  callLater = (delayMs: number, act: () => void): (() => void) => {
    this.#due = { atMs: this.#nowMs + delayMs - this.earlyMs, act };
    return () => (this.#due = undefined);
  };

  /** Runs the timer whenever it is due. */
  pass(ms: number): void {
    const endMs = this.#nowMs + ms;
    for (; this.#due !== undefined && this.#due.atMs <= endMs; this.looks += 1) {
      const { atMs, act } = this.#due;
      this.#nowMs = Math.max(this.#nowMs, atMs);
      act();
    }
    this.#nowMs = Math.max(this.#nowMs, endMs);
  }

  /** Time passes, and the timer runs after it. */
  block(ms: number): void {
    this.#nowMs += ms;
    this.pass(0);
  }
}

function started(): { loop: ScriptedLoop; read: () => { max: number; p99: number }; health: ThreadHealth } {
  const buffers = createMetrics(1, 1);
  const loop = new ScriptedLoop();
  const health = new ThreadHealth(buffers, 1, { loop });
  const read = () => {
    const [thread] = new MetricsReader(buffers).threads();
    return { max: thread!.delayMaxMs, p99: thread!.delayP99Ms };
  };
  return { loop, read, health };
}

void t.test('a thread at rest is woken once a second, a busy one fifty times', (t) => {
  const { loop, health } = started();
  loop.pass(6_000);
  loop.looks = 0;
  loop.pass(10_000);
  t.equal(loop.looks, 10);
  loop.active = 0.5;
  loop.pass(1_000);
  loop.looks = 0;
  loop.pass(1_000);
  t.equal(loop.looks, 50);
  health.stop();
  loop.looks = 0;
  loop.pass(1_000);
  t.equal(loop.looks, 0, 'one that was stopped, not at all');
  t.end();
});

void t.test(
  'the load is that of the last second in a quiet thread, and follows within 100 ms in a busy one',
  (t) => {
    const { loop, health } = started();
    loop.pass(6_000);
    t.equal(health.load, 0);
    loop.active = 0.8;
    loop.pass(1_000);
    t.equal(health.load, 0.8, 'of the second that has passed');
    loop.active = 0.1;
    loop.pass(20);
    t.ok(health.load > 0.5, 'one moment says little');
    loop.pass(100);
    t.ok(health.load < 0.3, String(health.load));
    loop.active = 0.01;
    loop.pass(10_000);
    loop.looks = 0;
    loop.pass(10_000);
    t.equal(loop.looks, 10, 'it is at rest again');
    t.equal(health.load, 0.01);
    t.end();
  },
);

void t.test('a block is seen at once, whenever it comes, and for the period and the one after', (t) => {
  // Some at each distance from the end of a period: none may fall into a gap between two of them.
  for (let atMs = 0; atMs <= 5_200; atMs += 10) {
    const { loop, read } = started();
    loop.active = 1;
    loop.pass(atMs);
    loop.block(1_000);
    const { max } = read();
    t.ok(max >= 980 && max <= 1_000, `block at ${atMs} ms`);
  }
  t.end();
});

void t.test('a block late in a period is seen, however early timers fire', (t) => {
  for (const earlyMs of [0, 0.5, 0.999])
    for (let atMs = 4_500; atMs <= 5_000; atMs += 5) {
      const { loop, read } = started();
      loop.active = 1;
      loop.earlyMs = earlyMs;
      loop.pass(atMs);
      loop.block(1_000);
      t.ok(read().max >= 980 - earlyMs, `${earlyMs} ms early, block at ${atMs} ms`);
    }
  t.end();
});

void t.test('what is shown is of the last period', (t) => {
  const { loop, read } = started();
  loop.active = 1;
  loop.block(320);
  t.same(read(), { max: 300, p99: 0 });
  loop.pass(5_000);
  t.same(read(), { max: 300, p99: 0 }, 'one of some 230 looks is not the 99th percentile');
  loop.pass(5_100);
  t.same(read(), { max: 0, p99: 0 });
  for (let looks = 0; looks < 20; looks += 1) loop.block(70);
  loop.pass(5_000);
  t.same(read(), { max: 50, p99: 50 });
  t.end();
});

void t.test('a stall of 100 ms every 500 ms is in the 99th percentile of the second period', (t) => {
  const { loop, read } = started();
  // A thread at rest, which measures once a second until it is busy.
  loop.pass(6_000);
  loop.active = 0.2;
  for (let stalls = 0; stalls < 20; stalls += 1) {
    loop.pass(400);
    loop.block(100);
  }
  const { max, p99 } = read();
  t.ok(max >= 80 && max <= 100, `max ${max}`);
  t.ok(p99 >= 80 && p99 <= 100, `p99 ${p99}`);
  t.end();
});

void t.test('the loop of this thread is measured', async (t) => {
  const buffers = createMetrics(1, 1);
  const health = new ThreadHealth(buffers, 1);
  const endMs = performance.now() + 120;
  while (performance.now() < endMs);
  await new Promise((resolve) => setTimeout(resolve, 1));
  const [thread] = new MetricsReader(buffers).threads();
  health.stop();
  t.ok(thread!.delayMaxMs >= 90, `${thread!.delayMaxMs} ms`);
  t.ok(thread!.heapBytes > 0);
});
