/**
 * Credits an account one unit at a time and says each time that it is done, until it is killed: `creditor
 * <data>`.
 */
import { writeSync } from 'node:fs';
import { SystemClock } from '#src/core/clock.js';
import { asPicoUnits } from '#src/core/units.js';
import { ownRegistryService } from '#src/registry/registry.js';
import { Store } from '#src/store/store.js';
import { offlineRegistry, TESTER } from './support.js';

const CREDITS_MAX = 100_000;
const service = ownRegistryService(offlineRegistry(new Store(process.argv[2]!), new SystemClock()));
for (let credits = 1; credits <= CREDITS_MAX; credits++) {
  await service.change(TESTER, (registry) => registry.credits.add('a', asPicoUnits(1n), 'one'));
  writeSync(1, `${credits}\n`);
}
