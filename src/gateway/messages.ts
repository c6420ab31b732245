/**
 * What travels between the supervisor and a gateway process, over the IPC channel of `fork` with 'advanced'
 * serialization. Both ends import this file.
 *
 *     supervisor → gateway   start    once, first: the settings, which hold the providers' keys and so are in no argument
 *                                     and in no variable that `ps` would show
 *                            drain    stop accepting, let calls in flight finish, flush, exit 0
 *     gateway → supervisor   ready    once: it serves
 *                            refused  once, instead of ready: it cannot run with these settings or this data. It then
 *                                     exits with GATEWAY_REFUSED_EXIT_CODE and is not started again
 *
 * Of the gateway's half: a terminal sends SIGINT and SIGHUP, and a service manager SIGTERM, to the gateway too, so it
 * ignores all three and waits for `drain`. When the supervisor dies, even by kill -9, the gateway gets 'disconnect' and
 * drains by itself, so that no gateway is left that nobody watches.
 */
import type { Settings } from '../config/schema.js';

/** EX_CONFIG of sysexits.h: starting again would end the same way. */
export const GATEWAY_REFUSED_EXIT_CODE = 78;

export interface StartGateway {
  readonly kind: 'start';
  /** Complete; after a restart with the ports that the first start got. */
  readonly settings: Settings;
  /** Whether the built-in demo runs, and a demo account is to be made in an empty store. */
  readonly demo: boolean;
}

export interface DrainGateway {
  readonly kind: 'drain';
}

export type ToGateway = StartGateway | DrainGateway;

export interface GatewayReady {
  readonly kind: 'ready';
  /** The port in use, also where the setting is 0. */
  readonly port: number;
  readonly adminPort: number;
  /** The demo account's, where there is one. */
  readonly demoAccountId: string | undefined;
  /** Shown once: undefined at every start but the one that made it. */
  readonly demoKey: string | undefined;
}

export interface GatewayRefused {
  readonly kind: 'refused';
  /** Says what is wrong and what to do; may have several lines. */
  readonly message: string;
}

export type FromGateway = GatewayReady | GatewayRefused;
