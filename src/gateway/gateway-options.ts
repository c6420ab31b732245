/**
 * The options of a gateway, which main.ts gives, and the state that its parts share while it runs, on the
 * main thread.
 */
import type { Settings } from '../config/schema.js';
import type { SettingInForce } from '../config/settings-in-force.js';
import type { OpenHosts } from '../sharing/open-hosts.js';
import type { Store } from '../store/store.js';
import type { Log, LogSwitchBuffer } from '../telemetry/log.js';
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
  /** The settings as operators see them. */
  readonly inForce: readonly SettingInForce[];
  readonly log: Log;
  /** Shared by all threads: the level and which calls are logged. The gateway writes the settings into it. */
  readonly logSwitch: LogSwitchBuffer;
  /** Whether to open the admin interface at the start. */
  readonly leads: boolean;
  /** Whether others of the group listen on the ports already. */
  readonly joins: boolean;
  readonly supervisor: SupervisorLink;
  /** Called if the gateway cannot go on: its process must end, whether the accounting is flushed or not. */
  readonly onHopeless: (reason: string) => void;
}

/** State that the gateway alone writes and its parts read when they need it. */
export interface GatewayState {
  /** Whether the gateway serves and is not draining. */
  ready: boolean;
  /** The port of the listeners; 0 before the start. */
  port: number;
  /** The settings as operators see them. */
  inForce: readonly SettingInForce[];
  /** Undefined before the start, and if no spans are exported. */
  traces: Traces | undefined;
}
