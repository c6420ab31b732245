/**
 * Gateways that are killed: SIGKILL of one process or both, the start after it, and what the books say then.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { picoUnitsOf } from '#src/core/money.js';
import { AdminClient, type AccountView } from './admin-client.js';
import { runCommand } from './command.js';
import { eventually, startGateway } from './gateway.js';
import type { Scope } from './mock.js';

/** Which processes get SIGKILL, in this order. A supervisor that lives starts the next gateway itself. */
export const KILLS = ['gateway', 'gateway, supervisor', 'supervisor, gateway'] as const;
export type Kill = (typeof KILLS)[number];

/** What a test needs of a gateway that serves. */
export interface Serving {
  readonly port: number;
  readonly admin: AdminClient;
}

export interface Books {
  /** Calls in the usage aggregates, and what they have cost. */
  readonly calls: number;
  readonly cost: bigint;
  readonly account: AccountView;
}

export interface AuditEnd {
  readonly status: number;
  readonly output: string;
}

/** Starts a gateway on the test's data, kills it, starts it again. */
export class CrashingGateway {
  readonly #scope: Scope;
  readonly #config: object;
  readonly #folder: string;
  readonly #env: Readonly<Record<string, string>>;
  #gateway: Awaited<ReturnType<typeof startGateway>> | undefined;

  constructor(scope: Scope, folder: string, config: object, env: Readonly<Record<string, string>> = {}) {
    this.#scope = scope;
    this.#folder = folder;
    this.#config = config;
    this.#env = env;
  }

  async start(): Promise<Serving> {
    this.#gateway = await startGateway(this.#scope, {
      folder: this.#folder,
      config: this.#config,
      env: this.#env,
    });
    return this.#gateway;
  }

  /** Kills at once; `restart` then waits for the end. */
  kill(kill: Kill): () => Promise<Serving> {
    const gateway = this.#gateway!;
    const pid = gateway.pid();
    for (const process_ of kill.split(', ')) {
      if (process_ === 'gateway') process.kill(pid, 'SIGKILL');
      else gateway.child.signal('SIGKILL');
    }
    return async () => {
      await eventually('the gateway has ended', () => (isAlive(pid) ? undefined : true));
      if (kill !== 'gateway') {
        await gateway.child.exit;
        return this.start();
      }
      // Nobody but its log tells the port that the next one got.
      const fields = await eventually('the next gateway', () =>
        gateway
          .log()
          .filter((line) => line.includes('gateway serves'))
          .map((line) => JSON.parse(line) as { port: number; adminPort: number; pid: number })
          .find((line) => line.pid !== pid && line.pid === gateway.pid()),
      );
      const token = readFileSync(join(gateway.dataFolder, 'admin-token'), 'utf8').trim();
      return { port: fields.port, admin: new AdminClient(fields.adminPort, token) };
    };
  }

  async stop(): Promise<number | null | undefined> {
    return this.#gateway?.stop();
  }

  /** `tollgate audit` on the data, beside whatever runs. */
  async audit(): Promise<AuditEnd> {
    const args = ['audit', '--config', join(this.#folder, 'tollgate.yaml')];
    const env = { ...this.#env, TOLLGATE_DATA: join(this.#folder, 'data') };
    const { code, stdout, stderr } = await runCommand(this.#folder, args, env);
    return { status: code, output: `${stdout}${stderr}` };
  }
}

export async function booksOf(admin: AdminClient, accountId: string): Promise<Books> {
  const answer = await admin.send('GET', `/admin/v1/usage?account=${accountId}`);
  if (answer.status !== 200) throw new Error(answer.body);
  const { data } = answer.json() as { data: { calls: number; cost: string }[] };
  let [calls, cost] = [0, 0n];
  for (const row of data) {
    calls += row.calls;
    cost += picoUnitsOf(row.cost)!;
  }
  return { calls, cost, account: await admin.account(accountId) };
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
