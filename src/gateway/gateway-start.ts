/**
 * The creation of a gateway's parts and its start: starts the threads, opens the ports, and begins what runs
 * by timers. gateway.ts calls `createParts` and `startGateway` once each, on the main thread of a gateway
 * process.
 *
 *     createParts    shared buffers → recovery of the accounting from the store → other parts
 *     startGateway   registry and leases → port found → flags of V8 → traces → credentials → workers
 *                    → listeners → admin → demo account → ready
 *
 * Must hold: a gateway that is told to end while it starts opens nothing after that, because `Gateway.close`
 * closes each part once. So each step that waits goes through `waitFor` (test/unit/gateway/gateway.test.ts).
 */
import { setFlagsFromString } from 'node:v8';
import { createCallTable } from '../channel/call-table.js';
import { settingsDeclaration } from '../config/schema.js';
import { secretsIn } from '../config/settings-in-force.js';
import { SystemClock } from '../core/clock.js';
import { LEFT_CALLS_MAX, LEFT_CALLS_OF_ACCOUNT_MAX, WHOLE_RESPONSES_BYTES_MAX } from '../core/limits.js';
import { processLimit } from '../core/process-limit.js';
import { createUpstreamBuffers, UpstreamCounters } from '../ledger/upstream-counters.js';
import { CredentialKeeper } from '../providers/credentials/credential-keeper.js';
import { credentialsOf, secretsOfCredential } from '../providers/credentials/credential-spec.js';
import { START } from '../registry/operator-change.js';
import { createBodyBudget } from '../request/body-budget.js';
import { createCallRing } from '../telemetry/call-ring-layout.js';
import { createContentsBudget } from '../telemetry/contents-budget.js';
import type { Log } from '../telemetry/log.js';
import { createLeftCallTable } from '../upstream/left-calls.js';
import { createBudget } from '../upstream/worker-budget.js';
import { secretsOf } from '../upstream/target.js';
import { openAccounting } from './accounting.js';
import { AdminService, type AdminServiceOptions } from './admin-service.js';
import { CounterPool } from './counter-pool.js';
import { findPort } from './find-port.js';
import { GatewayLogs } from './gateway-logs.js';
import { GatewayMetrics } from './gateway-metrics.js';
import type { GatewayOptions, GatewayState } from './gateway-options.js';
import { Listeners } from './listeners.js';
import { type GatewayReady, NO_SNAPSHOTS } from './messages.js';
import { Notifications } from './notifications.js';
import { LiveSettings } from './reload.js';
import { listenerSettingsOf, workersInListeners } from './settings-records.js';
import { Stats } from './stats.js';
import { startTraces } from './traces.js';
import { UpstreamWorkers } from './upstream-workers.js';

/**
 * Bytes of bytecode that V8 may inline into one function; its default is 920. A request passes through some
 * hundred small functions, and calls between them are expensive: relative to the default, a request takes
 * 1.14 to 1.23 times the CPU without inlining and 0.85 to 0.96 with this value. From 3,000 on the gain is
 * lost (bench/README.md).
 */
const INLINED_BYTES_MAX = 2_000;

/** How long a start waits for missing credentials. Calls without their credential get 502. */
const CREDENTIALS_WAIT_MS = 10_000;

export type GatewayParts = ReturnType<typeof createParts>;

/**
 * Creates the parts and recovers the accounting; throws what `openAccounting` throws. Starts no thread. Some
 * callbacks name parts that are created further below: they are called only once all parts exist.
 */
export function createParts(options: GatewayOptions, carryOut: AdminServiceOptions['carryOut']) {
  const { settings, store, group, openHosts, inForce, supervisor, logSwitch, log, onFatal } = options;
  const state: GatewayState = { ready: false, port: 0, inForce, traces: undefined };
  const requestPrefixes = new Map<number, string>();
  const requestPrefixOf = (listener: number): string => requestPrefixes.get(listener) ?? '';
  const buffers = createBuffers(options);
  const upstreams = {
    buffers: buffers.upstreams,
    counters: new UpstreamCounters(buffers.upstreams, new SystemClock()),
  };
  const metrics = new GatewayMetrics(settings, logSwitch, upstreams.counters);
  const live = new LiveSettings(settings, metrics.upstreams);
  metrics.upstreams.logShared(log);
  const accounting = openAccounting({
    settings,
    store,
    live,
    upstreams: buffers.upstreams,
    group,
    openHosts,
    requestPrefixOf,
    readAll: async (kind, accounts) => (await supervisor.readAll(kind, accounts)) ?? NO_SNAPSHOTS,
    log,
  });
  const notifications = new Notifications({ live, accounting, log });
  const counter = new CounterPool({ metrics: metrics.buffers, log });
  const credentials = new CredentialKeeper({
    specOf: (position) => live.credentials.specOf(position),
    send: (records) => workers.sendCredentials(records),
    clock: new SystemClock(),
    log,
  });
  const { calls, bodies, callRings, contentsBudgets, responses, leftCalls } = buffers;
  const logs = new GatewayLogs({
    settings,
    logSwitch,
    rings: callRings,
    contentsBudgets,
    names: {
      ids: accounting.base.idNames,
      modelIdOf: live.modelIdOf,
      groupNameOf: (index) => accounting.base.groupNames.nameOf(index),
      upstreamNameOf: (slot) => metrics.upstreams.known[slot]?.name,
      requestPrefixOf,
    },
    secrets: secretsReaderOf(live, credentials, () => admin.token),
    upstreamErrors: metrics.upstreamErrors,
    clock: new SystemClock(),
    log,
  });
  const workers = new UpstreamWorkers({
    workers: settings.workers,
    inListeners: workersInListeners(settings) > 0,
    routes: live.routes,
    calls,
    metrics,
    upstreams,
    responses,
    leftCalls,
    counter,
    credentials,
    state,
    log,
    serveLeases: accounting.sharing.serveLeases,
  });
  const listeners = new Listeners({
    settings,
    listenerSettings: listenerSettingsOf(settings, live.catalog),
    accounting,
    workers,
    counter,
    calls,
    bodies,
    callRings,
    contentsBudgets,
    logs,
    requestPrefixes,
    metrics,
    state,
    log,
    onFatal,
  });
  const stats = new Stats({
    live,
    metrics,
    accounting,
    bodies,
    listeners,
    logs,
    workers,
    credentials,
    notifications,
    state,
    group,
    supervisor,
  });
  const admin: AdminService = new AdminService({
    settings,
    live,
    accounting,
    stats,
    logs,
    supervisor,
    carryOut,
    state,
    log,
  });
  return {
    state,
    live,
    metrics,
    accounting,
    notifications,
    logs,
    counter,
    credentials,
    workers,
    listeners,
    stats,
    admin,
  };
}

/**
 * Creates the shared memory of the parts, besides that of the accounting and the metrics. Of rings and
 * budgets of contents each listener has one, by its index.
 */
function createBuffers({ settings, group }: GatewayOptions) {
  const { workers, listen, limits } = settings;
  const { listeners } = listen;
  const workersMax = workers + workersInListeners(settings);
  // The own workers of listeners add nothing to the budgets if there are threads for workers.
  const budgetShares = workers || listeners;
  return {
    upstreams: createUpstreamBuffers(workersMax, { isShared: group !== undefined }),
    responses: createBudget(workersMax, WHOLE_RESPONSES_BYTES_MAX * budgetShares),
    leftCalls: createLeftCallTable(LEFT_CALLS_MAX * budgetShares, LEFT_CALLS_OF_ACCOUNT_MAX * budgetShares),
    bodies: createBodyBudget(listeners, limits.accounts),
    calls: createCallTable(limits.calls_in_flight, limits.stream_buffer_bytes),
    callRings: Array.from({ length: listeners }, () => createCallRing()),
    contentsBudgets: Array.from({ length: listeners }, () => createContentsBudget()),
  };
}

/**
 * Returns a function that returns the texts to mask in stored contents of calls: the secrets that the gateway
 * has now. Those of the settings are read again when `live.routes` is another array, as after each reload.
 */
function secretsReaderOf(
  live: Pick<LiveSettings, 'settings' | 'routes'>,
  credentials: Pick<CredentialKeeper, 'current'>,
  adminToken: () => string,
): () => string[] {
  let routesRead: LiveSettings['routes'] | undefined;
  let ofSettings: readonly string[] = [];
  return () => {
    const { settings, routes } = live;
    if (routes !== routesRead) {
      const declared = secretsIn(settingsDeclaration, settings);
      // A webhook's secret is masked without its prefix too, because the remainder is the key itself.
      const webhookKeys = declared.map((secret) => secret.replace(/^whsec_/, ''));
      ofSettings = [
        ...routes.flatMap(({ targets }) => targets.flatMap(secretsOf)),
        ...declared,
        ...webhookKeys,
      ];
      routesRead = routes;
    }
    const renewed = credentials.current.flatMap(({ credential }) =>
      credential === undefined ? [] : secretsOfCredential(credential),
    );
    return [adminToken(), process.env.AZURE_CLIENT_SECRET ?? '', ...ofSettings, ...renewed];
  };
}

/**
 * Resolves when the gateway serves. Rejects if a step fails, as for a port that is taken, or if `isEnding`
 * returns true meanwhile: the gateway was told to end.
 */
export async function startGateway(
  options: GatewayOptions,
  parts: GatewayParts,
  isEnding: () => boolean,
): Promise<GatewayReady> {
  const { state, live, accounting, notifications, credentials, workers, listeners, admin } = parts;
  const { leads, joins, settings, log } = options;
  const waitFor = async <T>(step: T | Promise<T>): Promise<T> => {
    const result = await step;
    if (isEnding()) throw new Error('the gateway was ended while it started');
    return result;
  };
  await waitFor(accounting.sharing.start());
  const { host, port: setPort } = settings.listen;
  // A gateway that joins others shares their port; any other reserves the port until its listeners have it.
  const foundPort = joins ? undefined : await waitFor(findPort(host, setPort, 'listen'));
  const port = (state.port = foundPort?.port ?? setPort);

  setThreadFlags();
  openTraces(options, parts);
  await waitFor(credentials.ensure(credentialsOf(live.routes), CREDENTIALS_WAIT_MS));
  workers.start(listeners);
  await waitFor(listeners.start(port));
  foundPort?.release();
  // Another gateway may have got the admin interface since this start began, also while the port opens.
  const adminPort =
    leads && !admin.isFollowing ? await waitFor(admin.open({ checksPort: !joins })) : settings.admin.port;
  if (leads && !admin.isFollowing) notifications.lead();
  accounting.flushEvery(settings.flush_interval_ms, () => notifications.checkAndSend());
  const cause = { actor: START, action: 'accounts.create' } as const;
  // The demo account comes last, when no step can fail any more: only the start that makes its key shows it.
  const demo = options.demo
    ? await waitFor(accounting.service.change(cause, (registry) => registry.ensureDemo()))
    : undefined;
  state.ready = true;
  // The release of µWS that runs on Node 20 has an older HTTP parser, which hangs at `_` in a header's name.
  if (leads && process.versions.node.startsWith('20.'))
    log.warn('Node 20 is for development: headers such as session_id hang; use Node 22 or 24', {
      node: process.version,
    });
  if (leads) warnOfOpenFiles(settings.limits.calls_in_flight, log);
  log.info('gateway serves', { port, adminPort });
  return { kind: 'ready', port, adminPort, demoAccountId: demo?.accountId, demoKey: demo?.key };
}

/** A call takes two sockets. Node has raised the soft limit to the hard one, so only an operator can help. */
function warnOfOpenFiles(calls: number, log: Log): void {
  const openFiles = processLimit('Max open files');
  const wanted = calls * 2;
  if (wanted <= openFiles) return;
  log.warn(
    'more calls are allowed than the limit of open files lets through: raise it (ulimit -n, LimitNOFILE=, nofile of the container), or lower limits.calls_in_flight',
    { open_files: openFiles, calls_in_flight: calls, wanted },
  );
}

/**
 * Sets the flags of V8 that threads run with. A thread takes the first flag at its start, so all threads that
 * face the network run with code generation from strings disabled.
 *
 * Flags are set only here, just before the threads start, and not at the start of the process: with any flag
 * V8 rejects the compiled form of Node's own modules, and compiles each that is loaded from then on. With a
 * flag on its command line the main thread took 80 ms of CPU more. Each thread that is started with them
 * takes 45 ms more.
 */
function setThreadFlags(): void {
  setFlagsFromString('--disallow-code-generation-from-strings');
  setFlagsFromString(`--max-inlined-bytecode-size-cumulative=${INLINED_BYTES_MAX}`);
}

/** Starts the thread that exports to OpenTelemetry, if anything is exported. `Gateway.close` ends it. */
function openTraces({ log }: GatewayOptions, { state, metrics, accounting, logs }: GatewayParts): void {
  state.traces = startTraces(process.env, {
    accountIdOf: (account) => accounting.base.idNames.accountIdOf(account),
    metrics: metrics.buffers,
    stripe: metrics.tracesThread,
    log,
  });
  const callOutbox = state.traces?.newCallOutbox();
  if (callOutbox !== undefined) logs.exportTo(callOutbox);
}
