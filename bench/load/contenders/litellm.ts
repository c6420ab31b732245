/**
 * LiteLLM's proxy, the usual gateway in Python: one worker, a master key, no database; with limits,
 * requests and tokens per minute of the model, which is what it can hold without a database. `npm run
 * bench:peers` installs it into a folder of the bench's own.
 */
import { existsSync } from 'node:fs';
import { freePort } from '../../../test/support/free-port.js';
import { TEST_MODEL } from '../../../test/support/gateway.js';
import type { Scope } from '../../../test/support/mock.js';
import { CHAT_PATH, JSON_HEADERS, type Contender } from './contender.js';
import { startProgram } from './program.js';

/** Over the compiled bench: build/bench/load/contenders. */
const PROGRAM = new URL('../../../../bench/peers/python/bin/litellm', import.meta.url).pathname;
const MASTER_KEY = 'sk-master';
/** It imports for some twenty seconds. */
const READY_TIMEOUT_MS = 120_000;

/** Never reached by the bench. */
const LIMITS = { rpm: 100_000_000, tpm: 100_000_000_000 };

/** JSON is YAML. */
const configOf = (upstreamUrl: string, hasLimits: boolean): string =>
  JSON.stringify({
    model_list: [
      {
        model_name: TEST_MODEL,
        litellm_params: {
          model: `openai/${TEST_MODEL}`,
          api_base: upstreamUrl,
          api_key: 'none',
          ...(hasLimits ? LIMITS : {}),
        },
      },
    ],
    ...(hasLimits ? { router_settings: { optional_pre_call_checks: ['enforce_model_rate_limits'] } } : {}),
    general_settings: { master_key: MASTER_KEY },
  });

/** Undefined if it is not installed. */
export async function startLitellm(
  scope: Scope,
  upstreamUrl: string,
  name: 'litellm' | 'litellm-limits',
): Promise<Contender | undefined> {
  if (!existsSync(PROGRAM)) return undefined;
  const port = await freePort();
  const program = await startProgram(scope, {
    file: PROGRAM,
    config: () => configOf(upstreamUrl, name === 'litellm-limits'),
    args: (_, configFile) => ['--config', configFile, '--host', '127.0.0.1', '--port', String(port)],
    // It looks for prices on the network otherwise.
    env: { LITELLM_LOCAL_MODEL_COST_MAP: 'True' },
    port,
    readyTimeoutMs: READY_TIMEOUT_MS,
  });
  const headers = { ...JSON_HEADERS, authorization: `Bearer ${MASTER_KEY}` };
  return { name, port, pids: program.pids, callOf: () => ({ path: CHAT_PATH, headers }) };
}
