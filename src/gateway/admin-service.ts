/**
 * The admin interface of a gateway that may have it, pass it on to another of its group, or come to it later. Main thread.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { removeGatewayFile, writeGatewayFile } from '../admin/gateway-file.js';
import type { PublicAddress } from '../admin/playground.js';
import { type AdminOptions, type AdminServer, startAdmin } from '../admin/server.js';
import type { Settings } from '../config/schema.js';
import type { HistoryRows } from '../store/history-rows.js';
import type { StatusDocument } from '../telemetry/status-document.js';
import type { AccountReport } from '../telemetry/top-accounts.js';
import { HistoryRecorder } from './history-recorder.js';

/*
 * The port that all listeners of a gateway will share. Main thread, before they start.
 *
 * Listeners share their port with SO_REUSEPORT, and so would a second gateway that somebody starts by mistake: both would
 * get a part of the calls and neither would say a word. A bind without that option fails where anybody listens. µWS does
 * not set it where the kernel is to choose the port (0), so that choice is made here too.
 */

const ADVICE = {
  listen: 'listen.host and listen.port (TOLLGATE_HOST, TOLLGATE_PORT)',
  admin: 'admin.host and admin.port (TOLLGATE_ADMIN_HOST, TOLLGATE_ADMIN_PORT)',
};

/**
 * `port`, or a free one where it is 0. Throws an Error that names the address where it can't be listened on, and the
 * settings of `section` that choose it.
 */
export async function findPort(host: string, port: number, section: keyof typeof ADVICE): Promise<number> {
  const server = createServer();
  try {
    server.listen({ host, port, exclusive: true });
    await once(server, 'listening');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new Error(
      `Cannot listen on ${host}:${port} (${code}). Stop what uses the port, or set ${ADVICE[section]}.`,
      { cause: error },
    );
  }
  const found = (server.address() as AddressInfo).port;
  server.close();
  await once(server, 'close');
  return found;
}

/** Between tries to have the port, doubled from the first to the longest: nobody but this group should have it. */
const TRY_PAUSE_MS_MIN = 20;
const TRY_PAUSE_MS_MAX = 1_000;

export interface AdminServiceOptions extends Omit<
  AdminOptions,
  'host' | 'port' | 'allowedHosts' | 'live' | 'status'
> {
  /** Of all processes. */
  readonly status: () => Promise<StatusDocument>;
  /** Where the course of the figures is kept; only by the gateway that has the interface. */
  readonly history: HistoryRows;
  /** What all processes tell of who calls. */
  readonly accounts: () => Promise<readonly AccountReport[]>;
  /** Of the start: neither address nor folder change. */
  readonly place: Pick<Settings, 'admin' | 'data'>;
}

export class AdminService {
  readonly #options: AdminServiceOptions;
  #server: AdminServer | undefined;
  #recorder: HistoryRecorder | undefined;
  /** Another has the interface; who is still connected here is served until the end. */
  #follows = false;
  #closed = false;

  constructor(options: AdminServiceOptions) {
    this.#options = options;
  }

  /** Opens the port, which it returns; rejects where it can't be had. With `probes` it must be nobody's. */
  async open(probes: boolean): Promise<number> {
    const { place, readiness, status, accounts, history: rows, clock, log } = this.#options;
    const { host, port, hosts: allowedHosts } = place.admin;
    this.#recorder ??= new HistoryRecorder({ status, accounts, rows, clock, log });
    this.#server = await startAdmin({
      ...this.#options,
      // Who follows ends while its group serves.
      readiness: () => this.#follows || readiness(),
      live: this.#recorder,
      host,
      allowedHosts,
      port: probes ? await findPort(host, port, 'admin') : port,
    });
    const adminPort = this.#server.port;
    writeGatewayFile(place.data, { pid: process.pid, adminHost: host, adminPort });
    return adminPort;
  }

  /** The same, beside the gateway that has had it; tries until it can, true then, or false where it was closed before. */
  async lead(): Promise<boolean> {
    let failed = false;
    for (let pauseMs = TRY_PAUSE_MS_MIN; !this.#closed; pauseMs = Math.min(pauseMs * 2, TRY_PAUSE_MS_MAX)) {
      try {
        await this.open(false);
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

  /** Takes no new connections; who is connected is served until the end. */
  follow(): void {
    this.#follows = true;
    this.#server?.stop();
    this.#recorder?.close();
  }

  close(): void {
    this.#closed = true;
    this.#recorder?.close();
    this.#server?.close();
    removeGatewayFile(this.#options.place.data, process.pid);
  }
}

/*
 * Where this process reaches its own listeners. Pure; main thread.
 */

/** On loopback, where they listen on all addresses. `port`: the one in use. */
export function publicAddressOf({ listen }: Settings, port: number): PublicAddress {
  const host = listen.host === '0.0.0.0' ? '127.0.0.1' : listen.host === '::' ? '::1' : listen.host;
  return { host, port, tls: listen.tls !== undefined };
}
