/**
 * litellm-rs, a gateway in Rust: one worker thread as the others have one process. Either with nothing on,
 * or with its keys in SQLite and requests per minute. `npm run bench:peers` builds it into a folder of the
 * bench's own.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { freePort } from '../../../test/support/free-port.js';
import { TEST_MODEL } from '../../../test/support/gateway.js';
import type { Scope } from '../../../test/support/mock.js';
import { CHAT_PATH, JSON_HEADERS, type Contender } from './contender.js';
import { startProgram } from './program.js';

/** Over the compiled bench: build/bench/load/contenders. */
const PROGRAM = new URL('../../../../bench/peers/rust/bin/gateway', import.meta.url).pathname;
const PASSWORD = 'Bench-4711-password';
/** Never reached by the bench. */
const PER_MINUTE = 100_000_000;

const databaseOf = (folder: string): string => `${folder}/gateway.sqlite`;

/** JSON is YAML. */
const configOf = (folder: string, port: number, upstreamUrl: string, hasLimits: boolean): string =>
  JSON.stringify({
    schema_version: '1.0',
    server: { host: '127.0.0.1', port, workers: 1, max_connections: 10_000 },
    providers: [
      {
        name: 'mock',
        provider_type: 'vllm',
        api_key: '',
        base_url: upstreamUrl,
        endpoint_access: 'private_network',
        rpm: PER_MINUTE,
        tpm: PER_MINUTE,
        max_concurrent_requests: 10_000,
        models: [TEST_MODEL],
      },
    ],
    router: {
      strategy: 'round_robin',
      circuit_breaker: { failure_threshold: 5, recovery_timeout: 60, min_requests: 10, success_threshold: 3 },
      load_balancer: { health_check_enabled: false },
    },
    monitoring: {
      metrics: { enabled: hasLimits, port: 9090, path: '/metrics', interval_seconds: 15 },
      tracing: { enabled: false, endpoint: null, service_name: 'bench', sampling_rate: 0, jaeger: null },
      health: { path: '/health', detailed: false },
      logging: null,
    },
    storage: {
      database: {
        url: `sqlite://${databaseOf(folder)}?mode=rwc`,
        enabled: hasLimits,
        auto_migrate: hasLimits,
      },
      redis: { url: 'redis://127.0.0.1:1', enabled: false },
    },
    auth: {
      enable_jwt: hasLimits,
      enable_api_key: hasLimits,
      allow_anonymous: !hasLimits,
      jwt_secret: hasLimits ? 'aB3dE5fG7hJ9kL2mN4pQ6rS8tU1vW0xY' : '',
    },
    // A text filter of its own that the others do not have.
    guardrails: { enabled: false },
    pricing: { unpriced_model_policy: 'allow_unpriced', unpriced_fallback_cost_per_1k_tokens: 0 },
    rate_limit: { enabled: hasLimits, default_rpm: PER_MINUTE, requests_per_minute: PER_MINUTE },
  });

/** A user, and a key of the user. New users wait for a mail, which nobody sends here. */
async function newKey(port: number, database: string): Promise<string> {
  const user = { username: 'bench', email: 'bench@example.com', password: PASSWORD };
  await post(port, '/auth/register', user);
  const confirm = `import sqlite3
with sqlite3.connect(${JSON.stringify(database)}) as db: db.execute("update users set status='active', email_verified=1")`;
  execFileSync('python3', ['-c', confirm]);
  const login = await post(port, '/auth/login', user);
  const token = found(login, /"(?:access_)?token":"([^"]+)"/);
  const key = await post(port, '/v1/keys', { name: 'bench' }, { authorization: `Bearer ${token}` });
  return found(key, /"key":"([^"]+)"/);
}

async function post(
  port: number,
  path: string,
  body: object,
  headers: Readonly<Record<string, string>> = {},
): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, {
    method: 'POST',
    headers: { ...JSON_HEADERS, ...headers },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`litellm-rs, ${path}: ${response.status} ${text}`);
  return text;
}

function found(text: string, pattern: RegExp): string {
  const value = pattern.exec(text)?.[1];
  if (value === undefined) throw new Error(`litellm-rs: no ${pattern.source} in ${text}`);
  return value;
}

/** Undefined if it is not installed. */
export async function startLitellmRs(
  scope: Scope,
  upstreamUrl: string,
  name: 'litellm-rs' | 'litellm-rs-limits',
): Promise<Contender | undefined> {
  if (!existsSync(PROGRAM)) return undefined;
  const port = await freePort();
  const hasLimits = name === 'litellm-rs-limits';
  let database = '';
  const program = await startProgram(scope, {
    file: PROGRAM,
    config: (folder) => {
      database = databaseOf(folder);
      return configOf(folder, port, upstreamUrl, hasLimits);
    },
    args: (_, configFile) => ['--config', configFile],
    port,
  });
  const key = hasLimits ? { 'x-api-key': await newKey(port, database) } : {};
  return {
    name,
    port,
    pids: program.pids,
    callOf: () => ({ path: CHAT_PATH, headers: { ...JSON_HEADERS, ...key } }),
  };
}
