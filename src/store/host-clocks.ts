/**
 * The clocks of the host at the last flush. The store writes them with each flush (flush.ts). At a start,
 * recovery.ts reads them, to learn by how much the wall clock was set since, and so how old the counts of a
 * minute are. Main thread of a gateway process.
 *
 *     meta      'clocks'  → the boot, its monotonic clock, and how far the wall clock was ahead of that
 *
 * If the gateway shares its limits, the wall clock of a flush is the coordinator's, as in its rows. A start
 * has not joined yet and reads the host's own wall clock. In the same boot the difference counts as a step,
 * so ages are those by the coordinator's clock all the same.
 *
 * Must hold: if the boot is another one or unknown, the step is 0, and ages go by the wall clock. A machine
 * that sleeps stops the monotonic clock: then the permits of a minute count too long rather than too short.
 * Further tests: test/unit/store/recovery.test.ts, shared-books.test.ts.
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import type { Clock } from '../core/clock.js';
import { bootId } from './process-identity.js';
import { closedObject, findRow, Format, FORMAT, rowReader } from './record-codec.js';
import type { Tables } from './tables.js';

type MetaTable = Pick<Tables, 'meta'>;

const CLOCKS = 'clocks';

const StoredClocks = closedObject({
  format: Format,
  boot: Type.String(),
  monotonicMs: Type.Number(),
  /** The wall clock less the monotonic clock. */
  aheadMs: Type.Number(),
});

const readClocks = rowReader('StoredClocks', StoredClocks, (stored) => stored);

export type HostClocks = Readonly<Static<typeof StoredClocks>>;

/** Reads the machine's clocks; undefined if the boot is unknown. */
export function hostClocks(clock: Clock, boot = bootId()): HostClocks | undefined {
  if (boot === undefined) return undefined;
  const monotonicMs = clock.monotonicMs();
  return { format: FORMAT, boot, monotonicMs, aheadMs: clock.wallMs() - monotonicMs };
}

/** Call in the transaction of the flush. */
export function putClocks({ meta }: MetaTable, clocks: HostClocks): void {
  meta.putSync(CLOCKS, clocks);
}

/** By how much the wall clock was set forward since the last flush, negative if back; 0 if unknown. */
export function steppedMs({ meta }: MetaTable, current: HostClocks | undefined): number {
  const flushed = findRow(meta, CLOCKS, readClocks);
  if (flushed === undefined || current === undefined) return 0;
  // Each boot starts the monotonic clock at 0. A clock that has gone back belongs to another machine.
  const isSameClock = flushed.boot === current.boot && flushed.monotonicMs <= current.monotonicMs;
  return isSameClock ? current.aheadMs - flushed.aheadMs : 0;
}
