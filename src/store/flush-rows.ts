/**
 * The rows of the books, as a flush hands them to the store. Main thread.
 */
import type { AccountIndex, KeyIndex } from '../core/units.js';
import type { SpendingRecord } from '../registry/account-record.js';
import type { KeyUseRecord } from '../registry/key-record.js';
import type { UsageRecord } from '../registry/usage-report.js';
import type { ResponseChanges } from './stored-responses.js';
import type { HostClocks } from './host-clocks.js';

/** What a flush writes; the rows agree with each other, so they are written together. */
export interface FlushRows {
  readonly spendings: ReadonlyMap<AccountIndex, SpendingRecord>;
  readonly usages: Iterable<UsageRecord>;
  /** Of calls that are charged with these rows. */
  readonly answers?: ResponseChanges | undefined;
  /** Of the moment of these rows; absent where several gateways share the limits. */
  readonly clocks?: HostClocks | undefined;
  readonly keyUses?: ReadonlyMap<KeyIndex, KeyUseRecord> | undefined;
}
