/**
 * A call is billed whatever becomes of its count. Upstream worker.
 */
import type { AccountIndex } from '../core/units.js';
import type { Usage } from '../protocol/usage.js';
import type { FaultLog } from './fault-log.js';
import { estimateTokens, type CountRequest, type CountTokens } from './token-count.js';

/**
 * The count; if it fails or comes too late, an estimate made here, without a table. Never rejects for the counter's sake. It goes
 * on if the client leaves, because the bill needs it; it is taken back when the estimate has taken its place.
 */
export async function countOrEstimate(
  count: CountTokens,
  request: CountRequest,
  account: AccountIndex,
  faults: FaultLog,
): Promise<Usage> {
  try {
    return await count(request, account);
  } catch (error) {
    faults.write('warn', 'counter', 'tokens could not be counted, they were estimated', String(error));
    return estimateTokens(request);
  }
}
