/**
 * What the phases work with: one set a listener thread, made at its start.
 */
import type { Clock } from '../core/clock.js';
import type { JournalWriter } from '../ledger/journal.js';
import type { Ledger } from '../ledger/ledger.js';
import type { ListenerLink } from '../pool/listener-link.js';
import type { Catalog } from '../registry/catalog.js';
import type { KeyTable } from '../registry/key-table.js';
import type { MetricsStripe } from '../telemetry/metrics.js';
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
  readonly metrics: MetricsStripe;
  /** Calls in flight that one account may have. */
  readonly accountCallsMax: number;
  /** What happens where a balance covers the prompt but not the worst case. */
  readonly lowBalance: 'refuse' | 'clamp';
  /** Whether the end of an answer waits until its charge is on disk. */
  readonly durability: 'interval' | 'commit';
}
