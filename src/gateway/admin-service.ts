/**
 * Opens and closes the admin interface of a gateway, and connects its routes with the gateway's parts. Within
 * a process group one gateway has the interface: from its start, or from `lead`, until `follow`. gateway.ts
 * owns an AdminService, on the main thread, and calls `findPort` for the port of the listeners too.
 *
 * Must hold: gateways that are not of one process group never share an address. Each would get a part of the
 * calls, without an error (test/unit/gateway/admin-service.find-port.test.ts). A port that opens after
 * `follow` or `close` is closed at once. Only the gateway with the interface records the history.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer, type ListenOptions, type Server } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { removeGatewayFile, writeGatewayFile } from '../admin/gateway-file.js';
import type { LiveSource } from '../admin/live-feed.js';
import type { PublicAddress } from '../admin/playground.js';
import { type AdminOptions, type AdminServer, startAdmin } from '../admin/server.js';
import { obtainAdminToken } from '../admin/token.js';
import { callReaderOf } from '../call-log/call-reader.js';
import { ContentsReader } from '../call-log/contents-writer.js';
import type { Settings } from '../config/schema.js';
import { type Clock, SystemClock } from '../core/clock.js';
import type { Log, LogChange, LogView } from '../telemetry/log.js';
import type { Accounting } from './accounting.js';
import type { GatewayLogs } from './gateway-logs.js';
import type { GatewayState } from './gateway-options.js';
import { HistoryRecorder } from './history-recorder.js';
import type { Listeners } from './listeners.js';
import type { UpstreamWorkers } from './pools.js';
import type { LiveSettings } from './reload.js';
import type { Stats } from './stats.js';
import type { SupervisorLink } from './supervisor-link.js';

const ADVICE = {
  listen: 'listen.host and listen.port (TOLLGATE_HOST, TOLLGATE_PORT)',
  admin: 'admin.host and admin.port (TOLLGATE_ADMIN_HOST, TOLLGATE_ADMIN_PORT)',
};

/** How often the kernel is asked for a free port: another gateway that starts may hold the one it gives. */
const PORT_TRIES_MAX = 20;

/**
 * A port that no other gateway of this machine takes at that host, until `release` or the end of the process.
 * Call `release` when the port is open.
 */
interface FoundPort {
  readonly port: number;
  readonly release: () => void;
}

/**
 * Checks that nobody listens on `port`. Listeners share their port with SO_REUSEPORT, and a second gateway
 * that was started by mistake would share it too. A bind without that option fails if anybody listens. If
 * `port` is 0, the kernel chooses a port here, because µWS would open such a port without the option.
 *
 * Two gateways that start at the same time do not listen yet, so neither finds the other by its bind. So the
 * first one also binds a name for the address: an abstract Unix socket, which only Linux has. Addresses that
 * overlap, as 0.0.0.0 and 127.0.0.1 do, have different names: one name for all would refuse gateways on two
 * addresses of a machine. The kernel does not spread calls over such addresses: the narrower one gets them.
 *
 * Returns `port`, or a free port if it is 0. If the address cannot be bound, throws an Error that names it
 * and the settings of `section` that choose it.
 */
export async function findPort(host: string, port: number, section: keyof typeof ADVICE): Promise<FoundPort> {
  for (let tries = 1; ; tries++) {
    const probe = createServer();
    const refused = await bind(probe, { host, port });
    if (refused !== undefined) throw cannotListen(`${host}:${port}`, refused, section);
    const found = (probe.address() as AddressInfo).port;
    // The name is bound before the probe closes. A gateway that has released the name by then listens, so the
    // probe's bind would have failed.
    const name = createServer().unref();
    // The port comes first, because long names are cut.
    const held = await bind(name, { path: `\0tollgate-${found}-${host}` });
    probe.close();
    await once(probe, 'close');
    // After any other error there are no such names here, and the check of the port must do.
    if (held !== 'EADDRINUSE') return { port: found, release: () => name.close() };
    if (port !== 0 || tries === PORT_TRIES_MAX) throw cannotListen(`${host}:${port}`, held, section);
  }
}

/** Makes the server listen. Resolves with the error's code, or with undefined if it listens. */
async function bind(server: Server, address: ListenOptions): Promise<string | undefined> {
  try {
    server.listen(address);
    await once(server, 'listening');
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error);
  }
}

function cannotListen(address: string, code: string, section: keyof typeof ADVICE): Error {
  return new Error(
    `Cannot listen on ${address} (${code}). Stop what uses the port, or set ${ADVICE[section]}.`,
  );
}

/**
 * The pause between tries of `lead` to open the port doubles from the first value to the second. Within a
 * group the port is shared, so the first try succeeds unless another program has the port.
 */
const TRY_PAUSE_MS_MIN = 20;
const TRY_PAUSE_MS_MAX = 1_000;

export interface AdminServiceOptions {
  /** The settings of the start, for the admin address and the data directory: a reload changes neither. */
  readonly settings: Settings;
  /** The settings in force now. */
  readonly live: Pick<LiveSettings, 'settings'>;
  readonly accounting: Accounting;
  readonly stats: Stats;
  readonly logs: GatewayLogs;
  readonly workers: UpstreamWorkers;
  readonly listeners: Pick<Listeners, 'clearCache'>;
  readonly supervisor: SupervisorLink;
  readonly state: GatewayState;
  readonly log: Log;
}

export class AdminService {
  readonly #options: AdminServiceOptions;
  readonly token: string;
  /** All that were opened: one that has stopped keeps connections until their next response. */
  readonly #servers: AdminServer[] = [];
  #recorder: HistoryRecorder | undefined;
  /** Whether another gateway has the interface. */
  #follows = false;
  /**
   * Counts the calls of `lead`, `follow` and `close`. Work that waits, to open the port or to write the
   * address, remembers the count, and is dropped if the count has grown: it would undo the later call.
   */
  #orders = 0;
  /** Drops an `open` that is called after `close`, too. */
  #closed = false;

  constructor(options: AdminServiceOptions) {
    this.#options = options;
    this.token = obtainAdminToken(options.settings.data, process.env);
  }

  /**
   * Opens the interface and resolves with its port; rejects if the port cannot be bound. With `probes`, first
   * checks by `findPort` that nobody listens there. If `follow`, `close` or another `lead` comes meanwhile,
   * nothing stays open, but a port is returned all the same.
   */
  async open(probes: boolean): Promise<number> {
    const { settings, accounting, stats, log } = this.#options;
    const { host, port } = settings.admin;
    const order = this.#orders;
    const isAsked = (): boolean => !this.#closed && order === this.#orders;
    const found = probes ? await findPort(host, port, 'admin') : undefined;
    try {
      if (!isAsked()) return found?.port ?? port;
      const clock = new SystemClock();
      this.#recorder ??= new HistoryRecorder({
        status: () => stats.status(),
        accounts: () => stats.accounts(),
        rows: accounting.base.store.history,
        clock,
        log,
      });
      const server = await startAdmin({
        ...this.#routes(this.#recorder, clock),
        port: found?.port ?? port,
      });
      if (isAsked()) {
        this.#servers.push(server);
        this.#writeAddress(server.port, order, true);
      } else {
        server.close();
      }
      return server.port;
    } finally {
      found?.release();
    }
  }

  /**
   * Writes the address for commands; tries each second until the next order. Never throws, because `lead`
   * would then open the port a second time. Only the first try (`isFirst`) logs its failure.
   */
  #writeAddress(adminPort: number, order: number, isFirst: boolean): void {
    if (order !== this.#orders) return;
    const { settings, log } = this.#options;
    try {
      writeGatewayFile(settings.data, { pid: process.pid, adminHost: settings.admin.host, adminPort });
    } catch (error) {
      if (isFirst)
        log.error('commands do not find this gateway: its address cannot be written', {
          error: String(error),
        });
      setTimeout(() => this.#writeAddress(adminPort, order, false), TRY_PAUSE_MS_MAX).unref();
    }
  }

  /** Returns what the routes of the interface call. */
  #routes(charts: LiveSource, clock: Clock): Omit<AdminOptions, 'port'> {
    const { settings, live, accounting, stats, logs, supervisor, state, log } = this.#options;
    const calls = callReaderOf(settings.data, { written: () => logs.growingCalls });
    // An error is dropped here: the next search fails in the same way and reports it.
    void calls.begin().catch(() => undefined);
    return {
      host: settings.admin.host,
      allowedHosts: settings.admin.hosts,
      token: this.token,
      oidc: () => live.settings.admin.oidc,
      registry: accounting.registry,
      service: accounting.service,
      hosts: accounting.sharing.hosts,
      flushBooks: () => accounting.flushRequests.flushAll(),
      flushCalls: () => logs.flushCalls(),
      // A gateway that follows is about to end, but its process group serves.
      readiness: () => this.#follows || state.ready,
      status: () => stats.status(),
      metrics: (format) => stats.page(format),
      live: charts,
      reload: (request) => supervisor.reload(request),
      changeLog: (change) => this.#changeLog(change),
      resetUpstreams: (model) => this.#resetUpstreams(model),
      clearCache: (model) => this.#clearCache(model),
      settings: () => state.inForce,
      calls,
      contents: new ContentsReader(settings.data),
      // A reload may give the listeners TLS, or take it from them.
      publicAddress: () => publicAddressOf(live.settings, state.port),
      clock,
      log,
    };
  }

  #changeLog(change: LogChange): LogView {
    const { logs, supervisor, log } = this.#options;
    const view = logs.change(change);
    if (Object.keys(change).length > 0) {
      supervisor.sendLog(change);
      log.record('an operator changed what is logged, until the next reload', { ...view });
    }
    return view;
  }

  #resetUpstreams(model: string | undefined): Promise<void> {
    const { workers, supervisor, log } = this.#options;
    workers.resetUpstreams(model);
    log.record('an operator had upstreams called again at once', { model: model ?? 'all' });
    return supervisor.resetUpstreams(model);
  }

  async #clearCache(model: string | undefined): Promise<void> {
    const { accounting, listeners, supervisor, log } = this.#options;
    // All three caches are told in this event-loop turn, so no question of a listener is answered in between.
    // A reply that is on its way is served, but the listener does not keep it (`epoch` of ResponseCache).
    listeners.clearCache(model);
    log.record('an operator cleared the response cache', { model: model ?? 'all' });
    await Promise.all([accounting.cache.clear(model), supervisor.clearCache(model)]);
  }

  /**
   * Opens the interface while another gateway of the group still has it. Tries until it is open, and then
   * resolves with true; with false if `close`, `follow` or another `lead` is called before.
   */
  async lead(): Promise<boolean> {
    let failed = false;
    this.#follows = false;
    const order = ++this.#orders;
    const isAsked = (): boolean => !this.#closed && order === this.#orders;
    for (let pauseMs = TRY_PAUSE_MS_MIN; isAsked(); pauseMs = Math.min(pauseMs * 2, TRY_PAUSE_MS_MAX)) {
      try {
        await this.open(false);
        if (!isAsked()) return false;
        this.#options.log.info('gateway has the admin interface');
        return true;
      } catch (error) {
        if (!failed)
          this.#options.log.error('the admin interface cannot be opened', { error: String(error) });
        failed = true;
        await sleep(pauseMs);
      }
    }
    return false;
  }

  /**
   * Accepts no new connections. Each connected client gets one more response, which closes its connection,
   * and then connects to the other gateway.
   */
  follow(): void {
    this.#follows = true;
    this.#orders += 1;
    this.#stop();
  }

  /** Ends the recorder too. The next `open` makes another, with what other gateways have recorded by then. */
  #stop(): void {
    for (const server of this.#servers) server.stop();
    this.#recorder?.close();
    this.#recorder = undefined;
  }

  close(): void {
    this.#closed = true;
    this.#orders += 1;
    this.#recorder?.close();
    for (const server of this.#servers) server.close();
    removeGatewayFile(this.#options.settings.data, process.pid);
  }
}

/**
 * Returns the address at which this process reaches its own listeners: loopback if they listen on all
 * addresses. `port` is the port in use.
 */
function publicAddressOf({ listen }: Settings, port: number): PublicAddress {
  const host = listen.host === '0.0.0.0' ? '127.0.0.1' : listen.host === '::' ? '::1' : listen.host;
  return { host, port, tls: listen.tls !== undefined };
}
