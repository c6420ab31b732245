/**
 * The options of a gateway, which main.ts gives to gateway.ts, and the state that the gateway's parts share
 * while it runs. Main thread of a gateway process.
 */
import type { SettingInForce } from '../config/settings-in-force.js';
import type { OpenHosts } from '../sharing/open-hosts.js';
import type { Store } from '../store/store.js';
import type { LogSwitchBuffer } from '../telemetry/log-switch.js';
import type { Log } from '../telemetry/log.js';
import type { StartGateway } from './messages.js';
import type { SupervisorLink } from './supervisor-link.js';
import type { Traces } from './traces.js';

export interface GatewayOptions extends Pick<
  StartGateway,
  'settings' | 'demo' | 'group' | 'inForce' | 'leads' | 'joins'
> {
  /** From `openStore`; the gateway closes it. */
  readonly store: Store;
  /** Present if the settings have `sharing`. */
  readonly openHosts?: OpenHosts | undefined;
  readonly log: Log;
  /** Shared by all threads: the level and which calls are logged. The gateway writes the settings into it. */
  readonly logSwitch: LogSwitchBuffer;
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
