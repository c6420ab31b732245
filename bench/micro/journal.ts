/**
 * Nanoseconds that one record of the settlement journal costs its listener and the main thread.
 *
 *     node build/bench/micro/journal.js [--smoke]
 *
 * One thread does both in turn, in bursts of 1,000; wall time, best and median of the rounds.
 */
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { createJournalBuffer } from '#src/ledger/journal-layout.js';
import { JournalReader, JournalWriter } from '#src/ledger/journal.js';
import { machineLine } from '../support/machine.js';

const smoke = process.argv.includes('--smoke');
const ROUNDS = smoke ? 2 : 15;
const BURSTS = smoke ? 20 : 1_000;
const BURST = 1_000;

const ring = createJournalBuffer(0);
const writer = new JournalWriter(ring, () => undefined);
const reader = new JournalReader(ring);
let checksum = 0n;

/** Of appending and of draining, in nanoseconds a record. */
function round(): [number, number] {
  let appendNs = 0n;
  let drainNs = 0n;
  for (let burst = 0; burst < BURSTS; burst++) {
    const start = process.hrtime.bigint();
    for (let n = 0; n < BURST; n++) {
      if (writer.roomFor(n & 15) !== 'room') throw new Error('the ring is full');
      writer.append({
        request: n,
        endedMs: asWallMs(1_700_000_000_000 + n),
        promptTokens: n,
        cachedTokens: 0,
        cacheWriteTokens: 0,
        cacheWrite1hTokens: 0,
        reasoningTokens: 0,
        completionTokens: n,
        charged: asPicoUnits(3_000_000_000n),
        uncovered: asPicoUnits(0n),
        account: asAccountIndex(n),
        key: asKeyIndex(n),
        model: 0,
        requested: 0,
        outcome: 'served',
        source: 0,
        durationMs: n,
      });
    }
    const middle = process.hrtime.bigint();
    reader.drain((record) => (checksum += record.charged));
    drainNs += process.hrtime.bigint() - middle;
    appendNs += middle - start;
  }
  const records = BURSTS * BURST;
  return [Number(appendNs) / records, Number(drainNs) / records];
}

const rounds = Array.from({ length: ROUNDS }, round);
const show = (name: string, figures: number[]): void => {
  figures.sort((left, right) => left - right);
  const [best, median] = [figures[0]!, figures[figures.length >> 1]!];
  process.stdout.write(`${name.padEnd(18)} ${best.toFixed(0)} ns best, ${median.toFixed(0)} ns median\n`);
};
process.stdout.write(`${machineLine()}\n`);
show(
  'roomFor + append',
  rounds.map(([append]) => append),
);
show(
  'drain',
  rounds.map(([, drain]) => drain),
);
if (checksum !== BigInt(ROUNDS * BURSTS * BURST) * 3_000_000_000n) throw new Error(`checksum ${checksum}`);
