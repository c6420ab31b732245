/**
 * The admin interface on a port of its own, over a store with nothing in it.
 */
import { join } from 'node:path';
import type { Test } from 'tap';
import type { OidcSettings } from '#src/admin/oidc-claims.js';
import type { AdminContext, ReloadResult, SharedHosts } from '#src/admin/context.js';
import type { LogView } from '#src/telemetry/log-switch.js';
import { ContentsReader, ContentsWriter } from '#src/call-log/contents-writer.js';
import { callReaderOf } from '#src/call-log/call-reader.js';
import { CallWriter } from '#src/call-log/call-writer.js';
import { CALLS_FOLDER } from '#src/call-log/segment-files.js';
import { packContents } from '#src/telemetry/contents-layout.js';
import type { CallRecord } from '#src/telemetry/call-record.js';
import { startAdmin } from '#src/admin/server.js';
import { ownRegistryService } from '#src/registry/registry.js';
import type { LiveSource } from '#src/admin/live-feed.js';
import { History, type StatusStats } from '#src/telemetry/history.js';
import type { MetricsFormat, MetricsPage } from '#src/telemetry/exposition.js';
import { AccountHistory } from '#src/telemetry/account-history.js';
import { request, type Answer, type RequestOptions } from '../../support/http.js';
import { ListLog, openHouse, type House } from '../store/support.js';

export const TOKEN = 'operator-token-0123456789';
export const QUOTA_TIMEZONE = 'Europe/Berlin';
const SETTINGS = [{ setting: 'listen.port', value: '8080', origin: 'default', live: false }];

export interface AdminHouse extends House {
  readonly dataPath: string;
  readonly port: number;
  /** Where the playground calls; nobody listens there by default. */
  publicPort: number;
  readonly log: ListLog;
  /** What the live stream begins with. */
  readonly history: History;
  /** What `/metrics` answers. */
  metrics(format: MetricsFormat): Promise<MetricsPage>;
  /** What the live stream is told. */
  record(figures: StatusStats, nowSeconds: number): void;
  /** The course of the busiest accounts. */
  readonly accounts: AccountHistory;
  /** Another gateway has the interface from now on. */
  stop(): void;
  /** Those who want to be told. */
  watchers(): number;
  /** The setting `admin.oidc`; absent by default. */
  oidc: OidcSettings | undefined;
  /** What `/readyz` is told. */
  ready: boolean;
  /** Whether a flush of the books writes all. */
  flushes: boolean;
  /** Called before calls are searched. */
  flushCalls: () => void;
  /** What becomes of a reload. */
  reload: AdminContext['reload'];
  /** Those who share; nobody by default. */
  hosts: SharedHosts;
  /** A request with the token, unless other headers are given. */
  send(method: string, path: string, body?: unknown, more?: Partial<RequestOptions>): Promise<Answer>;
}

export async function startAdminHouse(
  t: Test,
  { host = '127.0.0.1', allowedHosts = [] }: { host?: string; allowedHosts?: readonly string[] } = {},
): Promise<AdminHouse> {
  const dataPath = t.testdir();
  const house = openHouse(dataPath);
  const log = new ListLog();
  const history = new History();
  const accounts = new AccountHistory();
  const watchers = new Set<Parameters<LiveSource['watch']>[0]>();
  const started = {
    ...house,
    dataPath,
    port: 0,
    publicPort: 1,
    record: (figures: StatusStats, nowSeconds: number): void => {
      const ended = history.add(figures, nowSeconds);
      for (const watcher of watchers) watcher(figures, ended);
    },
    stop: (): void => server.stop(),
    watchers: () => watchers.size,
    history,
    metrics: (format: MetricsFormat): Promise<MetricsPage> =>
      Promise.resolve({ contentType: 'text/plain', body: Buffer.from(format) }),
    accounts,
    log,
    oidc: undefined as OidcSettings | undefined,
    ready: true,
    flushes: true,
    flushCalls: (): void => undefined,
    reload: (_request: Parameters<AdminContext['reload']>[0]): Promise<ReloadResult> =>
      Promise.resolve({ applied: [], restartNeeded: [], problems: [], replacing: 0 }),
    hosts: { list: () => Promise.resolve([]), forget: () => Promise.resolve() } as SharedHosts,
    send: (method: string, path: string, body?: unknown, more: Partial<RequestOptions> = {}) =>
      request({
        port: started.port,
        method,
        path,
        body,
        headers: { authorization: `Bearer ${TOKEN}` },
        ...more,
      }),
  };
  const logged: LogView = { level: 'info', access_log: false, sample_percent: 100 };
  const server = await startAdmin({
    host,
    port: 0,
    allowedHosts,
    token: TOKEN,
    quotaTimezone: QUOTA_TIMEZONE,
    oidc: () => started.oidc,
    registry: house.registry,
    service: ownRegistryService(house.registry),
    flushBooks: () => Promise.resolve(started.flushes),
    flushCalls: () => started.flushCalls(),
    readiness: () => started.ready,
    status: () => ({ calls_in_flight: 3 }),
    reload: (request) => started.reload(request),
    changeLog: (change) => Object.assign(logged, change),
    resetUpstreams: () => Promise.resolve(),
    clearCache: () => Promise.resolve(),
    settings: () => SETTINGS,
    calls: callReaderOf(dataPath),
    contents: new ContentsReader(dataPath),
    hosts: { list: () => started.hosts.list(), forget: (id) => started.hosts.forget(id) },
    live: {
      history,
      accounts,
      watch: (watcher) => {
        watchers.add(watcher);
        return () => watchers.delete(watcher);
      },
    },
    publicAddress: () => ({ host: '127.0.0.1', port: started.publicPort, tls: false }),
    metrics: (format) => started.metrics(format),
    clock: house.clock,
    log,
  });
  started.port = server.port;
  t.teardown(async () => {
    server.close();
    await house.store.close();
  });
  return started;
}

/** Puts contents of calls where the interface finds them. */
export function keepContents(t: Test, house: AdminHouse, requestIds: readonly string[]): void {
  const writer = new ContentsWriter({
    dataPath: house.dataPath,
    retention: { keepHours: 24, keepBytes: 1e9, processes: 1 },
    clock: house.clock,
    log: house.log,
  });
  t.teardown(() => writer.close());
  const text = { bytes: Buffer.from('{}'), bytesInAll: 2 };
  for (const requestId of requestIds)
    writer.append(packContents({ requestId, endedMs: house.clock.wallMs(), request: text, response: text }));
  writer.flush();
}

/** Puts calls where the interface finds them. Returns the writer, which ends with the test. */
export function keepCalls(t: Test, house: AdminHouse, calls: readonly CallRecord[]): CallWriter {
  const writer = new CallWriter({
    folder: join(house.dataPath, CALLS_FOLDER),
    retention: { keepHours: 72, keepBytes: 1e9, processes: 1 },
    clock: house.clock,
    log: house.log,
  });
  t.teardown(() => writer.close());
  for (const call of calls) writer.append(call);
  writer.flush();
  return writer;
}
