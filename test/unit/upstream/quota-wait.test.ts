/** A bug in one call that waits ends that call, and not the worker with all of its calls. */
import t from 'tap';
import { UPSTREAM_QUEUE_BYTES_MAX } from '#src/core/limits.js';
import { asAccountIndex, asUpstreamScopeIndex } from '#src/core/units.js';
import { createMetrics } from '#src/telemetry/metrics-layout.js';
import { UpstreamMetrics } from '#src/telemetry/metrics-writers.js';
import { QuotaQueue } from '#src/upstream/quota-queue.js';
import { QuotaWait, type WaitOwner } from '#src/upstream/quota-wait.js';
import { ASK_MS } from '#src/upstream/upstream-quotas.js';
import { ManualClock } from '../../fixtures/manual-clock.js';

const NO_ROOM = {
  quota: undefined,
  slot: 0,
  freeInMs: 0,
  queueMs: 1_000,
  mayBeGranted: false,
  isUnknown: false,
};

void t.test('whichever of its methods throws', (t) => {
  for (const broken of ['waitsFor', 'tryNow', 'giveUp', 'mayBeGranted', 'recordQueued'] as const) {
    const clock = new ManualClock();
    const queue = new QuotaQueue(clock);
    const metrics = new UpstreamMetrics(createMetrics(1, 1), 0);
    const bug = new Error('a bug');
    const heard: string[] = [];
    let isBroken = false;
    const waitOf = (name: string, changes: Partial<WaitOwner>, queueMs: number): QuotaWait => {
      const wait: QuotaWait = new QuotaWait(queue, clock, metrics, {
        account: asAccountIndex(1),
        bytes: 0,
        waitsFor: () => [asUpstreamScopeIndex(0)],
        tryNow: () => false,
        giveUp: () => void heard.push(`${name} gives up`),
        recordQueued: () => undefined,
        mayBeGranted: () => false,
        crash: (error) => {
          heard.push(`${name} crashes`);
          t.equal(error, bug);
          // As a session does that fails.
          wait.leave();
        },
        ...changes,
      });
      wait.begin({ ...NO_ROOM, queueMs });
      return wait;
    };
    const owner = {
      waitsFor: () => [asUpstreamScopeIndex(0)],
      tryNow: () => false,
      giveUp: () => undefined,
      mayBeGranted: () => false,
      recordQueued: () => undefined,
    };
    const breaking = (): never => {
      throw bug;
    };
    waitOf(
      'first',
      { [broken]: () => (isBroken ? breaking() : owner[broken]()) },
      broken === 'waitsFor' ? 60_000 : 1,
    );
    const second = waitOf('second', { tryNow: () => (second.end(), isBroken) }, 60_000);
    isBroken = true;
    // The first has waited for as long as it may, unless the coordinator is asked.
    clock.advance(ASK_MS / 2);
    t.doesNotThrow(() => queue.sweep(), broken);
    t.same(heard, ['first crashes'], broken);
    queue.sweep();
    t.equal(queue.size, 0, `${broken}: the other call was served`);
    t.same(heard, ['first crashes'], `${broken}: once`);
  }
  t.end();
});

void t.test('a call that throws as the full queue drops it fails once', (t) => {
  const clock = new ManualClock();
  const heard: string[] = [];
  const wait = new QuotaWait(new QuotaQueue(clock), clock, new UpstreamMetrics(createMetrics(1, 1), 0), {
    account: asAccountIndex(1),
    bytes: UPSTREAM_QUEUE_BYTES_MAX,
    waitsFor: () => {
      throw new Error('a bug');
    },
    tryNow: () => false,
    giveUp: () => void heard.push('gives up'),
    recordQueued: () => undefined,
    mayBeGranted: () => false,
    crash: () => {
      heard.push('crashes');
      wait.leave();
    },
  });
  wait.begin(NO_ROOM);
  t.same(heard, ['crashes']);
  t.end();
});

void t.test('a call that has thrown is asked no more, and leaves', (t) => {
  const clock = new ManualClock();
  const queue = new QuotaQueue(clock);
  let asked = 0;
  let crashes = 0;
  const breaking = (): never => {
    asked++;
    throw new Error('a bug');
  };
  const wait = new QuotaWait(queue, clock, new UpstreamMetrics(createMetrics(1, 1), 0), {
    account: asAccountIndex(1),
    bytes: 0,
    waitsFor: breaking,
    tryNow: breaking,
    giveUp: breaking,
    recordQueued: () => undefined,
    mayBeGranted: breaking,
    crash: () => {
      crashes++;
      wait.leave();
    },
  });
  wait.begin(NO_ROOM);
  t.same([asked, crashes], [1, 1], 'as it is added');
  clock.advance(ASK_MS / 2);
  queue.sweep();
  t.same([asked, crashes, queue.size], [1, 1, 0], 'its time is over, but its owner has failed already');
  wait.begin({ ...NO_ROOM, queueMs: 60_000 });
  queue.sweep();
  t.same([asked, crashes, queue.size], [2, 2, 0], 'one wait, one crash');
  t.end();
});
