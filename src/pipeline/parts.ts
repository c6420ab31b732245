/**
 * What the phases work with: one set a listener thread, made at its start and anew when the settings are reloaded. A phase
 * reads one set; two phases of a call may read two, whose indices mean the same.
 */
import type { Clock } from '../core/clock.js';
import type { JournalWriter } from '../ledger/journal.js';
import type { Ledger } from '../ledger/ledger.js';
import type { LeaseLink } from '../pool/lease-link.js';
import type { ListenerLink } from '../pool/listener-link.js';
import type { Catalog } from '../registry/catalog.js';
import type { KeyTable } from '../registry/key-table.js';
import type { AccessWriter } from '../telemetry/access-ring.js';
import type { ListenerMetrics } from '../telemetry/listener-metrics.js';
import type { HeldEnds } from './held-ends.js';
import type { ModelAccess } from './model-access.js';

export interface PipelineParts {
  readonly clock: Clock;
  readonly ledger: Ledger;
  readonly journal: JournalWriter;
  readonly held: HeldEnds;
  readonly keys: KeyTable;
  readonly catalog: Catalog;
  readonly access: ModelAccess;
  readonly link: ListenerLink;
  /** Where limits are shared with other processes. */
  readonly leases: LeaseLink | undefined;
  readonly metrics: ListenerMetrics;
  readonly accessLog: AccessWriter;
  /** What happens where a balance covers the prompt but not the worst case. */
  readonly lowBalance: 'refuse' | 'clamp';
  /** Whether the end of an answer waits until its charge is on disk. */
  readonly durability: 'interval' | 'commit';
}
