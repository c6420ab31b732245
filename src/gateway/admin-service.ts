/**
 * Opens and closes the admin interface of a gateway, and connects its routes with the gateway's parts. Within
 * a process group one gateway has the interface: from its start, or from `lead`, until `follow`. gateway.ts
 * owns an AdminService, on the main thread of a gateway process.
 *
 * Must hold: a port that opens after `follow` or `close` is closed at once. Only the gateway with the
 * interface records the history.
 */
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
import { findPort } from './find-port.js';
import type { GatewayLogs } from './gateway-logs.js';
import type { GatewayState } from './gateway-options.js';
import { HistoryRecorder } from './history-recorder.js';
import type { PublishReset } from './messages.js';
import type { LiveSettings } from './reload.js';
import type { Stats } from './stats.js';
import type { SupervisorLink } from './supervisor-link.js';

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
