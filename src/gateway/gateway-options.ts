/**
 * What a gateway is started with. Main thread of a gateway process.
 */
import type { Settings } from '../config/schema.js';
import type { SettingInForce } from '../config/settings-in-force.js';
import type { OpenHosts } from '../sharing/open-hosts.js';
import type { Log, LogSwitchBuffer } from '../telemetry/log.js';
import type { GroupPosition } from './messages.js';
import type { SupervisorLink } from './supervisor-link.js';

export interface GatewayOptions {
  readonly settings: Settings;
  /** Make a demo account in an empty store. */
  readonly demo: boolean;
  /** Absent where no other gateway works on this data folder. */
  readonly group?: GroupPosition | undefined;
  /** Where the settings have `sharing`. */
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
