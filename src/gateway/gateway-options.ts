/**
 * The options of a gateway, which main.ts gives to gateway.ts, and the state that the gateway's parts share
 * while it runs. Main thread of a gateway process.
 */
import type { Settings } from '../config/schema.js';
import type { SettingInForce } from '../config/settings-in-force.js';
import type { OpenHosts } from '../sharing/open-hosts.js';
import type { Store } from '../store/store.js';
import type { LogSwitchBuffer } from '../telemetry/log-switch.js';
import type { Log } from '../telemetry/log.js';
import type { GroupPosition } from './messages.js';
import type { SupervisorLink } from './supervisor-link.js';
import type { Traces } from './traces.js';

export interface GatewayOptions {
  readonly settings: Settings;
  /** From `openStore`; the gateway closes it. */
  readonly store: Store;
  /** Whether to create a demo account in an empty store. */
  readonly demo: boolean;
  /** Undefined if no other gateway uses this data directory. */
  readonly group?: GroupPosition | undefined;
  /** Present if the settings have `sharing`. */
  readonly openHosts?: OpenHosts | undefined;
  /** The settings as operators see them, without secrets. */
  readonly inForce: readonly SettingInForce[];
  readonly log: Log;
  /** Shared by all threads: the level and which calls are logged. The gateway writes the settings into it. */
  readonly logSwitch: LogSwitchBuffer;
  /** Whether to open the admin interface at the start; otherwise only at `lead`. */
  readonly leads: boolean;
  /** Whether other gateways of the group listen on the ports already, so that a taken port is no error. */
  readonly joins: boolean;
  readonly supervisor: SupervisorLink;
  /** Called if the gateway cannot serve any longer: its process must end, even without a last flush. */
  readonly onFatal: (reason: string) => void;
}

/** The state as the parts read it. They keep no copies, because the values change. */
export type GatewayStateView = Readonly<GatewayState>;

/** Only gateway.ts and gateway-start.ts write it. */
export interface GatewayState {
  /** Whether the gateway serves and does not drain. */
  ready: boolean;
  /** The port of the listeners; 0 before the start. */
  port: number;
  /** The settings as operators see them. */
  inForce: readonly SettingInForce[];
  /** Undefined before the start, and if no spans are exported. */
  traces: Traces | undefined;
}
