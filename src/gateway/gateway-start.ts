/**
 * The start of a gateway, after its parts are created: starts the threads, opens the ports, and begins what
 * runs by timers. gateway.ts calls `startGateway` once, on the main thread of a gateway process.
 *
 *     store → shared buffers → recovery (all three in gateway.ts) → registry and leases → port found
 *           → flags of V8 → traces → credentials → workers → listeners → admin → demo account → ready
 *
 * Must hold: a gateway that is told to end while it starts opens nothing after that, because `Gateway.close`
 * closes each part once. So each step that waits goes through `waitFor` (test/unit/gateway/gateway.test.ts).
 */
import { setFlagsFromString } from 'node:v8';
import { processLimit } from '../core/process-limit.js';
import type { CredentialKeeper } from '../providers/credentials/credential-keeper.js';
import { credentialsOf } from '../providers/credentials/credential-spec.js';
import { START } from '../registry/operator-change.js';
import type { Log } from '../telemetry/log.js';
import type { Accounting } from './accounting.js';
import { type AdminService, findPort } from './admin-service.js';
import type { GatewayLogs } from './gateway-logs.js';
import type { GatewayMetrics } from './gateway-metrics.js';
import type { GatewayOptions, GatewayState } from './gateway-options.js';
import type { Listeners } from './listeners.js';
import type { GatewayReady } from './messages.js';
import type { Notifications } from './notifications.js';
import type { UpstreamWorkers } from './upstream-workers.js';
import type { LiveSettings } from './reload.js';
import { startTraces } from './traces.js';

/**
 * Bytes of bytecode that V8 may inline into one function; its default is 920. A request passes through some
 * hundred small functions, and calls between them are expensive: relative to the default, a request takes
 * 1.14 to 1.23 times the CPU without inlining and 0.85 to 0.96 with this value. From 3,000 on the gain is
 * lost (bench/README.md).
 */
const INLINED_BYTES_MAX = 2_000;

/** How long a start waits for missing credentials. Calls without their credential get 502. */
const CREDENTIALS_WAIT_MS = 10_000;

interface StartContext {
  readonly options: GatewayOptions;
  readonly state: GatewayState;
  readonly live: LiveSettings;
  readonly metrics: GatewayMetrics;
  readonly accounting: Accounting;
  readonly notifications: Notifications;
  readonly logs: GatewayLogs;
  readonly credentials: CredentialKeeper;
  readonly workers: UpstreamWorkers;
  readonly listeners: Listeners;
  readonly admin: AdminService;
  /** Whether the gateway was told to end. */
  readonly isEnding: () => boolean;
}

/**
 * Resolves when the gateway serves. Rejects if a step fails, as for a port that is taken, or if the gateway
 * is told to end meanwhile.
 */
export async function startGateway(context: StartContext): Promise<GatewayReady> {
  const { options, state, live, accounting, notifications, workers, listeners, admin } = context;
  const { leads, joins, settings, log } = options;
  const waitFor = async <T>(step: T | Promise<T>): Promise<T> => {
    const result = await step;
    if (context.isEnding()) throw new Error('the gateway was ended while it started');
    return result;
  };
  await waitFor(accounting.sharing.start());
  const { host, port: setPort } = settings.listen;
  // A gateway that joins others shares their port; any other reserves the port until its listeners have it.
  const foundPort = joins ? undefined : await waitFor(findPort(host, setPort, 'listen'));
  const port = (state.port = foundPort?.port ?? setPort);

  setThreadFlags();
  openTraces(context);
  await waitFor(context.credentials.ensure(credentialsOf(live.routes), CREDENTIALS_WAIT_MS));
  workers.start(listeners);
  await waitFor(listeners.start(port));
  foundPort?.release();
  const adminPort = leads ? await waitFor(admin.open({ checksPort: !joins })) : settings.admin.port;
  if (leads) notifications.lead();
  flushEach(settings.flush_interval_ms, accounting, notifications);
  const cause = { actor: START, action: 'accounts.create' } as const;
  // When no step can fail any more, as for a port in use: the start that makes the key shows it, once.
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
 * Sets the flags of V8 that threads run with. A thread takes the first as it starts, so all threads that face
 * the network run without code from strings.
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

/** Starts the thread that exports to OpenTelemetry, if anything is exported. `close` ends it. */
function openTraces({ options, state, metrics, accounting, logs }: StartContext): void {
  state.traces = startTraces(process.env, {
    accountIdOf: (account) => accounting.base.idNames.accountIdOf(account),
    metrics: metrics.buffers,
    thread: metrics.tracesThread,
    log: options.log,
  });
  const callOutbox = state.traces?.newCallOutbox();
  if (callOutbox !== undefined) logs.exportTo(callOutbox);
}

/** Flushes at this interval from now on. gateway.ts calls it too, after a reload. */
export function flushEach(intervalMs: number, accounting: Accounting, notifications: Notifications): void {
  accounting.flushEvery(intervalMs, () => notifications.checkAndSend());
}
