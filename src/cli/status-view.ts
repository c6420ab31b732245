/**
 * The document of `GET /admin/v1/status` as the screen reads it. Every field may be missing, for a gateway of another
 * version answers too.
 */
import type { SharingStatus, StatusDocument } from '../telemetry/status-document.js';

export interface StatusView extends Partial<Omit<StatusDocument, 'limits' | 'tokens' | 'sharing'>> {
  readonly limits?: Pick<StatusDocument['limits'], 'calls_in_flight'>;
  readonly tokens?: Partial<StatusDocument['tokens']>;
  readonly sharing?: Pick<SharingStatus, 'state' | 'reason' | 'lost_seconds' | 'registry'> | null;
}

/** An answer and when it came. */
export interface StatusSample {
  readonly status: StatusView;
  /** Of a monotonic clock. */
  readonly atMs: number;
}
