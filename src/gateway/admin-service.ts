/**
 * Opens and closes the admin interface of a gateway, and connects its routes with the gateway's parts. Within
 * a process group one gateway has the interface: from its start, or from `lead`, until `follow`. gateway.ts
 * owns an AdminService, on the main thread of a gateway process, and calls `findPort` for the port of the
 * listeners too.
 *
 * Must hold: gateways that are not of one process group never share an address. Otherwise each would get some
 * of the calls, without an error (test/unit/gateway/admin-service.find-port.test.ts). A port that opens
 * after `follow` or `close` is closed at once. Only the gateway with the interface records the history.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer, type ListenOptions, type Server } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { localHost, removeGatewayFile, writeGatewayFile } from '../admin/gateway-file.js';
import type { LiveSource } from '../admin/live-feed.js';
import type { PublicAddress } from '../admin/playground.js';
import { type AdminOptions, type AdminServer, startAdmin } from '../admin/server.js';
import { obtainAdminToken } from '../admin/token.js';
import { callReaderOf } from '../call-log/call-reader.js';
import { ContentsReader } from '../call-log/contents-writer.js';
import type { Settings } from '../config/schema.js';
import { type Clock, SystemClock } from '../core/clock.js';
import type { LogChange, LogView } from '../telemetry/log-switch.js';
import type { Log } from '../telemetry/log.js';
import type { Accounting } from './accounting.js';
import type { GatewayLogs } from './gateway-logs.js';
import type { GatewayState } from './gateway-options.js';
import { HistoryRecorder } from './history-recorder.js';
import type { PublishReset } from './messages.js';
import type { LiveSettings } from './reload.js';
import type { Stats } from './stats.js';
import type { SupervisorLink } from './supervisor-link.js';

/** The settings that choose an address, for error messages. */
const ADVICE = {
  listen: 'listen.host and listen.port (TOLLGATE_HOST, TOLLGATE_PORT)',
  admin: 'admin.host and admin.port (TOLLGATE_ADMIN_HOST, TOLLGATE_ADMIN_PORT)',
};

/** How often the kernel is asked for a free port: another gateway that starts may hold the one it gives. */
const PORT_TRIES_MAX = 20;

/**
 * A port that no other gateway of this machine takes at that host, until `release` is called or the process
 * ends. Call `release` when the port is open.
 */
interface FoundPort {
  readonly port: number;
  readonly release: () => void;
}

/**
 * Checks that nobody listens on `port`. Listeners share their port with SO_REUSEPORT, and a second gateway
 * that was started by mistake would share it too. A bind without that option fails if anybody listens. If
 * `port` is 0, the kernel chooses a port here, because µWS would open a port 0 without the option.
 *
 * Two gateways that start at the same time do not listen yet, so neither finds the other by its bind. So each
 * also binds a name for the address: an abstract Unix socket, which only Linux has. Overlapping addresses
 * such as 0.0.0.0 and 127.0.0.1 have different names, because one name for all would reject gateways on two
 * addresses of a machine. The kernel does not spread calls over such addresses: the narrower one gets them.
 *
 * Returns `port`, or a free port if it is 0. If the address cannot be bound, throws an Error that names it
 * and the settings of `section` that choose it.
 */
export async function findPort(host: string, port: number, section: keyof typeof ADVICE): Promise<FoundPort> {
  for (let tries = 1; ; tries++) {
    const portProbe = createServer();
    const portError = await bind(portProbe, { host, port });
    if (portError !== undefined) throw cannotListen(host, port, portError, section);
    const foundPort = (portProbe.address() as AddressInfo).port;
    // The name is bound before the probe closes. A gateway that has released the name by then listens, so the
    // probe's bind would have failed.
    const nameHolder = createServer().unref();
    // The port comes first in the name, because long names are cut.
    const nameError = await bind(nameHolder, { path: `\0tollgate-${foundPort}-${host}` });
    portProbe.close();
    await once(portProbe, 'close');
    // Any other error means that this system has no such names. Then only the port is checked.
    if (nameError !== 'EADDRINUSE') return { port: foundPort, release: () => nameHolder.close() };
    if (port !== 0 || tries === PORT_TRIES_MAX) throw cannotListen(host, port, nameError, section);
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

function cannotListen(host: string, port: number, code: string, section: keyof typeof ADVICE): Error {
  const address = host.includes(':') ? `[${host}]` : host;
  const remedy = Object.hasOwn(REMEDIES, code) ? REMEDIES[code]! : 'See that this machine has the address';
  return new Error(`Cannot listen on ${address}:${port} (${code}). ${remedy}, or set ${ADVICE[section]}.`);
}

/** What helps, beside another address, by the code of the error; for other codes see `cannotListen`. */
const REMEDIES: Readonly<Record<string, string>> = {
  EADDRINUSE: 'Stop what uses the port',
  EACCES: 'A port below 1024 wants root or the capability CAP_NET_BIND_SERVICE: grant it',
  ENOTFOUND: 'The name has no address: see that it is spelled right',
  EAI_AGAIN: 'The name cannot be resolved: see that DNS works here',
  EAFNOSUPPORT: 'This machine has no IPv6: enable it',
};

/**
 * The pause between tries of `lead` to open the port doubles from the first value to the second. Within a
 * group the port is shared, so the first try succeeds unless another program has the port.
 */
const TRY_PAUSE_MS_MIN = 20;
const TRY_PAUSE_MS_MAX = 1_000;

/**
 * How many servers are kept open. When a gateway gets the interface for the fifth time, connections of the
 * first time have been idle for long.
 */
const SERVERS_MAX = 4;

export interface AdminServiceOptions {
  /** The settings of the start, for the admin address and the data directory: a reload changes neither. */
  readonly settings: Settings;
  /** The settings in force now. */
  readonly live: Pick<LiveSettings, 'settings'>;
  readonly accounting: Accounting;
  readonly stats: Stats;
  readonly logs: GatewayLogs;
  readonly supervisor: SupervisorLink;
  /** Does at this gateway what an operator wants of all. */
  readonly carryOut: (message: PublishReset) => Promise<void>;
  readonly state: GatewayState;
  readonly log: Log;
}

export class AdminService {
  readonly #options: AdminServiceOptions;
  readonly token: string;
  /**
   * The last SERVERS_MAX that were opened. A server that has stopped keeps its connections until their next
   * response.
   */
  readonly #servers: AdminServer[] = [];
  #recorder: HistoryRecorder | undefined;
  /** Whether `follow` was the last order: another gateway has the interface. */
  #isFollowing = false;
  /**
   * Counts the orders: calls of `lead`, `follow` and `close`. Code that waits to open the port or to write
   * the address remembers the count as its `order`. If a later order has come, the code stops, because it
   * would undo that order.
   */
  #orders = 0;
  /** Whether `close` was called: then nothing is opened any more. */
  #isClosed = false;

  constructor(options: AdminServiceOptions) {
    this.#options = options;
    this.token = obtainAdminToken(options.settings.data, process.env);
  }

  /** Whether another gateway has the interface, as the last order says. */
  get isFollowing(): boolean {
    return this.#isFollowing;
  }

  /**
   * Opens the interface and resolves with its port; rejects if the port cannot be bound. With `checksPort`,
   * first checks by `findPort` that nobody listens there. If another order comes meanwhile, nothing stays
   * open, but the method resolves with a port all the same.
   */
  async open({ checksPort }: { readonly checksPort: boolean }): Promise<number> {
    const { settings, accounting, stats, log } = this.#options;
    const { host, port } = settings.admin;
    const order = this.#orders;
    const foundPort = checksPort ? await findPort(host, port, 'admin') : undefined;
    try {
      if (!this.#isCurrent(order)) return foundPort?.port ?? port;
      const clock = new SystemClock();
      this.#recorder ??= new HistoryRecorder({
        status: () => stats.status(),
        accountReports: () => stats.accounts(),
        rows: accounting.base.store.history,
        clock,
        log,
      });
      const server = await startAdmin({
        ...this.#routes(this.#recorder, clock),
        port: foundPort?.port ?? port,
      });
      if (this.#isCurrent(order)) {
        this.#servers.push(server);
        if (this.#servers.length > SERVERS_MAX) this.#servers.shift()!.close();
        this.#writeAddress(server.port, order, 'first');
      } else {
        server.close();
      }
      return server.port;
    } finally {
      foundPort?.release();
    }
  }

  #isCurrent(order: number): boolean {
    return !this.#isClosed && order === this.#orders;
  }

  /**
   * Writes the address for commands; tries each second until the next order. Never throws, because `lead`
   * would then open the port a second time. Only the first try logs its failure.
   */
  #writeAddress(adminPort: number, order: number, attempt: 'first' | 'later'): void {
    if (order !== this.#orders) return;
    const { settings, log } = this.#options;
    try {
      writeGatewayFile(settings.data, { pid: process.pid, adminHost: settings.admin.host, adminPort });
    } catch (error) {
      if (attempt === 'first')
        log.error('commands do not find this gateway: its address cannot be written', {
          error: String(error),
        });
      setTimeout(() => this.#writeAddress(adminPort, order, 'later'), TRY_PAUSE_MS_MAX).unref();
    }
  }

  /** Returns what the routes of the interface call; AdminOptions describes each member. */
  #routes(recorder: LiveSource, clock: Clock): Omit<AdminOptions, 'port'> {
    const { settings, live, accounting, stats, logs, supervisor, state, log } = this.#options;
    const calls = callReaderOf(settings.data, { growingSegment: () => logs.growingCalls });
    // An error is dropped here: the next search fails in the same way and reports it.
    void calls.begin().catch(() => undefined);
    return {
      host: settings.admin.host,
      allowedHosts: settings.admin.hosts,
      token: this.token,
      quotaTimezone: settings.quota_timezone,
      oidc: () => live.settings.admin.oidc,
      registry: accounting.registry,
      service: accounting.service,
      hosts: accounting.sharing.hosts,
      flushBooks: () => accounting.flushRequests.flushAll(),
      flushCalls: () => logs.flushCalls(),
      // A gateway that follows is about to end, but its process group serves.
      readiness: () => this.#isFollowing || state.ready,
      status: () => stats.status(),
      metrics: (format) => stats.page(format),
      live: recorder,
      reload: (request) => supervisor.reload(request),
      changeLog: (change) => this.#changeLog(change),
      resetUpstreams: (model) =>
        this.#publish('an operator had upstreams called again at once', { kind: 'reset_upstreams', model }),
      clearCache: (model) =>
        this.#publish('an operator cleared the response cache', { kind: 'clear_cache', model }),
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
    const view = logs.changeSwitch(change);
    if (Object.keys(change).length > 0) {
      void supervisor.broadcast({ kind: 'log', change });
      log.record('an operator changed what is logged, until the next reload', { ...view });
    }
    return view;
  }

  /** Carries out what an operator wants, here and at the other gateways, and logs it as `text`. */
  async #publish(text: string, message: PublishReset): Promise<void> {
    const { carryOut, supervisor, log } = this.#options;
    log.record(text, { model: message.model ?? 'all' });
    await Promise.all([carryOut(message), supervisor.broadcast(message)]);
  }

  /**
   * Opens the interface while another gateway of the group still has it. Tries again until the port is open,
   * and then resolves with true; with false if another order comes before. Never rejects.
   */
  async lead(): Promise<boolean> {
    let hasFailed = false;
    this.#isFollowing = false;
    const order = ++this.#orders;
    let pauseMs = TRY_PAUSE_MS_MIN;
    for (; this.#isCurrent(order); pauseMs = Math.min(pauseMs * 2, TRY_PAUSE_MS_MAX)) {
      try {
        // The port is not checked, because the other gateway listens there too.
        await this.open({ checksPort: false });
        if (!this.#isCurrent(order)) return false;
        this.#options.log.info('gateway has the admin interface');
        return true;
      } catch (error) {
        if (!hasFailed)
          this.#options.log.error('the admin interface cannot be opened', { error: String(error) });
        hasFailed = true;
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
    this.#isFollowing = true;
    this.#orders += 1;
    this.#stop();
  }

  /** Stops servers and recorder. The next `open` makes a recorder that reads what others have recorded. */
  #stop(): void {
    for (const server of this.#servers) server.stop();
    this.#recorder?.close();
    this.#recorder = undefined;
  }

  /** Closes all connections too, and removes the address. To be called once, as the gateway ends. */
  close(): void {
    this.#isClosed = true;
    this.#orders += 1;
    this.#recorder?.close();
    for (const server of this.#servers) server.close();
    removeGatewayFile(this.#options.settings.data, process.pid);
  }
}

/** Returns the address at which this process reaches its own listeners. `port` is the port in use. */
function publicAddressOf({ listen }: Settings, port: number): PublicAddress {
  return { host: localHost(listen.host), port, tls: listen.tls !== undefined };
}
