/**
 * Waiting for a count, but not for ever: the end of the client's answer hangs on it. Upstream worker.
 */
import type { Usage } from '../protocol/usage.js';
import type { FaultLog } from './fault-log.js';
import { countTokens, type CountRequest, type CountTokens } from './token-count.js';

/** Why a count was given up, as the log names it. */
export const COUNT_TIMEOUT = 'COUNT_TIMEOUT';

/** The count; where it fails or takes longer than `waitMsMax`, an estimate made here, without a table. Never rejects for the counter's sake. */
export async function countOrEstimate(
  count: CountTokens,
  request: CountRequest,
  waitMsMax: number,
  faults: FaultLog,
): Promise<Usage> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(COUNT_TIMEOUT)), waitMsMax);
  });
  try {
    return await Promise.race([count(request), late]);
  } catch (error) {
    faults.write('warn', 'counter', 'tokens could not be counted, they were estimated', String(error));
    return countTokens({ ...request, tokenizer: 'none' });
  } finally {
    clearTimeout(timer);
  }
}
