/** A total that a host reports is never older than its version, whenever another process writes the store. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { hostAccounting } from '#src/sharing/host-accounting.js';
import type { Store } from '#src/store/store.js';

type AccountingStore = Parameters<typeof hostAccounting>[0];

/** A store whose totals and versions grow by one each, before the read of that number. */
function storeWritten(beforeRead: number): AccountingStore {
  let written = 0;
  let reads = 0;
  const read = <Value>(valueOf: (written: number) => Value): Value => {
    reads += 1;
    if (reads === beforeRead) written = 1;
    return valueOf(written);
  };
  return {
    refresh: () => undefined,
    listAccountIds: () => [],
    keys: { find: () => undefined },
    shared: { accountingVersion: () => read((version) => version) },
    copy: { position: () => read((version) => ({ epoch: 'e', version, lastId: 'i', history: [] })) },
    findAccount: () => read((total) => ({ index: 0, credited: asPicoUnits(BigInt(total)) })),
    findSpending: () => read((total) => ({ spent: asPicoUnits(BigInt(total)) })),
  } as unknown as Store;
}

void t.test('an amount is as new as its version, or newer', (t) => {
  for (let beforeRead = 1; beforeRead <= 5; beforeRead++) {
    for (const name of ['spentOf', 'creditedOf'] as const) {
      const { totalPicoUnits, version } = hostAccounting(storeWritten(beforeRead))[name]('acct_1')!;
      t.ok(totalPicoUnits >= BigInt(version), `${name}, written before read ${beforeRead}`);
    }
  }
  t.end();
});
