/** Two threads race for the quota record of each scope. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { QUOTA_WORDS64 } from '#src/ledger/layout.js';
import type { RacerInit } from '../fixtures/quota-records-racer.worker.js';

const SCOPES = 20_000;
/** A thread that loses an exchange keeps its record for its next scope: one at the end, for each thread. */
const KEPT_RECORDS = 2;

void t.test('a scope has one record on both threads, and a record one scope', async (t) => {
  const int32 = (length: number): Int32Array<SharedArrayBuffer> =>
    new Int32Array(new SharedArrayBuffer(4 * length));
  const init: RacerInit = {
    words: int32(SCOPES),
    records: new SharedArrayBuffer(8 * QUOTA_WORDS64 * (SCOPES + KEPT_RECORDS)),
    used: int32(1),
    steering: int32(1),
    scopesARound: 100,
  };
  const racers = [0, 1].map(
    () =>
      new Worker(new URL('../fixtures/quota-records-racer.worker.js', import.meta.url), { workerData: init }),
  );
  const [first, second] = (await Promise.all(racers.map((racer) => once(racer, 'message')))).map(
    ([taken]) => taken as Int32Array,
  ) as [Int32Array, Int32Array];
  t.equal(
    first.findIndex((record, scope) => record !== second[scope]),
    -1,
    'the same on both threads',
  );
  t.equal(
    first.findIndex((record, scope) => record !== init.words[scope]! - 1),
    -1,
    'the one of its word',
  );
  t.equal(first.indexOf(-1), -1, 'every scope has one');
  t.equal(new Set(first).size, SCOPES, 'no record has two scopes');
  t.ok(init.used[0]! <= SCOPES + KEPT_RECORDS, 'no record is lost');
});
