/**
 * What `tollgate serve` runs when there is no configuration file: enough to see a response, a stream, and money move.
 * Plain values; the settings reader fills in the rest. Main threads and commands.
 */
import { CALLS_PER_DAY_MAX, REQUESTS_PER_MINUTE_MAX } from '../core/limits.js';

export const DEMO_MODEL = 'echo';
export const DEMO_PLAN = 'demo';

export const DEMO_SETTINGS = {
  models: [
    {
      id: DEMO_MODEL,
      owned_by: 'tollgate',
      // Of the size of a small hosted model's, so that an account's balance can be seen to fall.
      price: { input: '0.15', output: '0.60' },
      tokenizer: 'o200k_base',
      upstreams: [{ url: 'echo:' }],
    },
  ],
  plans: [
    {
      id: DEMO_PLAN,
      // The largest there are: the first evening's load test shall measure the gateway and not meet a limit.
      requests_per_minute: REQUESTS_PER_MINUTE_MAX,
      calls_per_day: CALLS_PER_DAY_MAX,
      models: ['*'],
    },
  ],
};
