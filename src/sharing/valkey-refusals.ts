/**
 * Why the server of sharing did not carry an exchange out. valkey-partition.ts reads the status of each reply
 * of EXCHANGE_SCRIPT (valkey-scripts.ts), whose comment explains the statuses, and rejects with the error
 * that is made here. docs/sharing.md shows the messages to operators. Pure.
 */
import { CoordinatorLost, unknownNode } from './coordinator.js';

/** The statuses by which EXCHANGE_SCRIPT carried nothing out. */
export type RefusedStatus = 'unknown' | 'old' | 'aged' | 'report' | 'quarantine' | 'check' | 'new';

/** Of these the statuses by which the server has lost data, or counts as one that has. */
export const LOSSES: ReadonlySet<RefusedStatus> = new Set(['unknown', 'report', 'quarantine', 'aged']);

/**
 * The error for a refused exchange. `waitMs` is how long a quarantine still lasts; `awaited` are some of the
 * places that the server waits for.
 */
export function lossOf(status: RefusedStatus, waitMs = 0, awaited: readonly string[] = []): CoordinatorLost {
  const seconds = Math.ceil(waitMs / 1_000);
  const missing = `${awaited.join(', ')} and maybe others have not`;
  switch (status) {
    case 'unknown':
      return unknownNode();
    case 'report':
    case 'quarantine':
      return new CoordinatorLost(
        'quarantine',
        `the server may have lost data; nothing is lent for ${seconds} s, and until all hosts have reported` +
          (awaited.length === 0 ? '' : `: ${missing}`),
        { waitMs },
      );
    case 'check':
      return new CoordinatorLost(
        'checking',
        'the server is another one than before, and lends nothing until all hosts have found that it lost ' +
          `nothing, for ${seconds} s at most: ${missing}`,
      );
    case 'new':
      return new CoordinatorLost(
        'checking',
        'this host is new to the server, and is lent nothing until another one was heard',
      );
    case 'aged':
      return new CoordinatorLost('quarantine', "the server's clock was set forward");
    case 'old':
      return new CoordinatorLost('failing', `the server refused an exchange: ${status}`);
  }
}
