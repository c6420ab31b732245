/**
 * What the clocks of the machine showed at the last flush, so that a start knows by how much the calendar was set since: a
 * minute that was counted is as old as the monotonic clock says, which all processes of one boot share. Main thread.
 *
 *     meta   'clocks'   → the boot, its monotonic clock, and how far the calendar was ahead of that
 *
 * After a boot, and where no boot can be told, ages go by the calendar. A machine that sleeps stops the monotonic clock: then
 * a minute weighs too long rather than too short.
 */
import { Type, type Static } from 'typebox';
import { Compile } from 'typebox/compile';
import type { Clock } from '../core/clock.js';
import { bootId } from './process-identity.js';
import { FORMAT, Format, damaged, fast } from './record-codec.js';
import type { Tables } from './tables.js';

const CLOCKS = 'clocks';

const StoredClocks = Type.Object(
  { format: Format, boot: Type.String(), monotonicMs: Type.Number(), aheadMs: Type.Number() },
  { additionalProperties: false },
);

const validator = fast(Compile(StoredClocks));

export type HostClocks = Readonly<Static<typeof StoredClocks>>;

type ClockTables = Pick<Tables, 'path' | 'meta'>;

/** As they are; undefined where the boot is not known. */
export function hostClocks(clock: Clock, boot = bootId()): HostClocks | undefined {
  if (boot === undefined) return undefined;
  const monotonicMs = clock.monotonicMs();
  return { format: FORMAT, boot, monotonicMs, aheadMs: clock.wallMs() - monotonicMs };
}

/** In a transaction. */
export function putClocks({ meta }: ClockTables, clocks: HostClocks): void {
  meta.putSync(CLOCKS, clocks);
}

/** By how much the calendar was set forward since the last flush, negative if it was set back; 0 where that is not known. */
export function steppedMs({ path, meta }: ClockTables, now: HostClocks | undefined): number {
  const then = meta.get(CLOCKS);
  if (then === undefined || now === undefined) return 0;
  if (!validator.Check(then)) throw damaged(`${path}: record ${CLOCKS} of table meta`);
  const sameClock = then.boot === now.boot && then.monotonicMs <= now.monotonicMs;
  return sameClock ? now.aheadMs - then.aheadMs : 0;
}
