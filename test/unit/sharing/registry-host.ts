/**
 * A host of several that share a registry, in this process; run as a program, one that credits an account one
 * unit at a time and says each time that it is done, until it is killed: `registry-host <data> <url>`.
 */
import { writeSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { SystemClock } from '#src/core/clock.js';
import { asPicoUnits } from '#src/core/units.js';
import { AccountDirectory } from '#src/registry/account-directory.js';
import { SharedUses } from '#src/registry/shared-uses.js';
import { Registry } from '#src/registry/registry.js';
import { RegistryLog } from '#src/sharing/registry-log.js';
import { RegistryServer } from '#src/sharing/registry-server.js';
import { ValkeyClient } from '#src/sharing/valkey-client.js';
import { Store } from '#src/store/store.js';
import { CATALOG, ListLog, TESTER } from '../store/support.js';

export class RegistryHost {
  readonly store: Store;
  readonly registry: Registry;
  readonly log: RegistryLog;
  readonly lines = new ListLog();
  readonly clients: readonly ValkeyClient[];
  taken = 0;

  constructor(dataPath: string, url: string, host: string, candidatesWaitMs = 500) {
    this.store = new Store(dataPath);
    this.registry = new Registry({
      store: this.store,
      catalog: CATALOG,
      clock: new SystemClock(),
      accountsMax: 10_000,
      groupsMax: 10_000,
      keysMax: 10_000,
      live: new SharedUses(this.store, new AccountDirectory()),
    });
    this.clients = ['calls', 'waits'].map(
      (name) => new ValkeyClient({ url, name: `${host}-${name}`, deadlineMs: 2_000 }),
    );
    this.log = new RegistryLog({
      store: this.store,
      server: new RegistryServer({
        client: this.clients[0]!,
        waiter: this.clients[1]!,
        namespace: 'test',
      }),
      host,
      onApplied: () => this.taken++,
      log: this.lines,
      candidatesWaitMs,
    });
  }

  change<Result>(work: (registry: Registry) => Result): Promise<Result> {
    return this.log.commit(
      () => this.registry.runAs(TESTER, () => work(this.registry)).result,
      () => undefined,
    );
  }

  /** All that hosts share, as text. */
  rows(): string {
    return [...this.store.copy.rows()].map((row) => JSON.stringify(row)).join('\n');
  }

  async close(): Promise<void> {
    for (const client of this.clients) client.close();
    await this.log.close();
    await this.store.close();
  }
}

const CREDITS_MAX = 100_000;

async function credit(dataPath: string, url: string): Promise<void> {
  const host = new RegistryHost(dataPath, url, 'credits');
  await host.log.join();
  for (let credits = 1; credits <= CREDITS_MAX; credits++) {
    await host.change((registry) => registry.credits.add('a', asPicoUnits(1n), 'one'));
    writeSync(1, `${credits}\n`);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  await credit(process.argv[2]!, process.argv[3]!);
}
