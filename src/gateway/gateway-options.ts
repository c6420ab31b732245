/**
 * What a gateway is started with, and what its parts must know of each other while it runs. Main thread of a
 * gateway process.
 */
import type { Settings } from '../config/schema.js';
import type { SettingInForce } from '../config/settings-in-force.js';
import type { OpenHosts } from '../sharing/open-hosts.js';
import type { Log, LogSwitchBuffer } from '../telemetry/log.js';
import type { GroupPosition } from './messages.js';
import type { SupervisorLink } from './supervisor-link.js';
import type { Traces } from './traces.js';

export interface GatewayOptions {
  readonly settings: Settings;
  /** Make a demo account in an empty store. */
  readonly demo: boolean;
  /** Absent if no other gateway works on this data folder. */
  readonly group?: GroupPosition | undefined;
  /** Present if the settings have `sharing`. */
  readonly openHosts?: OpenHosts | undefined;
  /** The settings as operators look at them. */
  readonly inForce: readonly SettingInForce[];
  readonly log: Log;
  /** What all threads log; the settings are put in it. */
  readonly logSwitch: LogSwitchBuffer;
  /** Has the admin interface from the start on. */
  readonly leads: boolean;
  /** Others of its group have the ports already. */
  readonly joins: boolean;
  /** To the supervisor, for an operator. */
  readonly supervisor: SupervisorLink;
  /** The gateway can't go on: its process must end, with its books flushed or not. */
  readonly onHopeless: (reason: string) => void;
}

/** Written by the gateway alone; its parts read it when they need it. */
export interface GatewayState {
  /** Serves, and does not drain. */
  ready: boolean;
  /** Of the listeners; 0 before the start. */
  port: number;
  /** The settings as operators look at them. */
  inForce: readonly SettingInForce[];
  /** Undefined before the start, and if no spans are exported. */
  traces: Traces | undefined;
}
