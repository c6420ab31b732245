/**
 * The messages between the supervisor and a gateway process, over the IPC channel of `fork` with 'advanced'
 * serialization, and the figures in them. Both ends import this file.
 *
 *     supervisor → gateway   start    once, first: the settings. They hold the providers' keys, which `ps`
 *                                     would show in an argument or a variable
 *                            reload   take these settings while serving; with check, say whether it could
 *                            outcome  answers `ask_reload`
 *                            in_force what an operator is shown as the settings, after a reload
 *                            lead     have the admin interface from now on, beside the gateway that has it
 *                            follow   another has the admin interface: take no new connections to it
 *                            read     send your figures
 *                            readings answers `ask_readings`
 *                            log      an operator has changed what is logged, at one of the gateways
 *                            drain    stop accepting, let calls in flight finish, flush, exit 0
 *     gateway → supervisor   ready    once: it serves
 *                            leads    once it has the admin interface; only after `lead`
 *                            reading  answers `read`, or unasked before the end: the last figures
 *                            ask_readings  an operator asks for the figures of all gateways
 *                            log      an operator changes what is logged; it goes to all gateways
 *                            refused  once, instead of ready: it cannot run with these settings or this data.
 *                                     It then exits with GATEWAY_REFUSED_EXIT_CODE and is not started again
 *                            reloaded answers `reload`
 *                            ask_reload  an operator asks. Only the supervisor knows the name of the file and
 *                                        has the environment
 *
 * A terminal sends SIGINT and SIGHUP, and a service manager SIGTERM, to the gateway too: it ignores all three
 * and waits for `drain`. If the supervisor dies, even by kill -9, the gateway gets 'disconnect' and
 * drains by itself, so that no gateway is left that nobody watches.
 */
import type { Settings } from '../config/schema.js';
import type { SettingChange, SettingInForce, SettingsDifference } from '../config/settings-in-force.js';
import type { LogChange } from '../telemetry/log.js';
import { invariant } from '../core/errors.js';
import { identityOf } from '../store/process-identity.js';
import type { CallsUse } from '../sharing/sharing-stats.js';
import type { Outcome } from '../telemetry/metrics-layout.js';
import type { MetricsSnapshot } from '../telemetry/metrics-snapshot.js';
import type { CallCounts, RunStatus } from '../telemetry/status-document.js';
import type { AccountReport } from '../telemetry/top-accounts.js';

/** EX_CONFIG of sysexits.h: starting again would end the same way. */
export const GATEWAY_REFUSED_EXIT_CODE = 78;

export interface StartGateway {
  readonly kind: 'start';
  /** Complete; after a restart with the ports that the first start got. */
  readonly settings: Settings;
  /** Whether the built-in demo runs, and a demo account is to be made in an empty store. */
  readonly demo: boolean;
  /** The settings as an operator looks at them. */
  readonly inForce: readonly SettingInForce[];
  /**
   * Where several gateways work on one data folder and share its limits; absent if this one has it for
   * itself.
   */
  readonly group?: GroupPosition | undefined;
  /** Whether it has the admin interface from the start on. */
  readonly leads: boolean;
  /**
   * Others of its group listen on the ports already: they are shared with them, and nobody else can have
   * them.
   */
  readonly joins: boolean;
}

/** Which of the gateways of its supervisor a gateway is. */
export interface GroupPosition {
  /** Text that no other supervisor has: the gateways of one are let into the folder together. */
  readonly id: string;
  /**
   * From 0. No two gateways that run have the same one; a gateway that comes in the place of one that has
   * ended has its.
   */
  readonly slot: number;
}

/**
 * The `id` of the gateways of this process, which is a supervisor. No other supervisor of this host ever has
 * the same.
 */
export function ownGroupId(): string {
  const id = identityOf(process.pid);
  invariant(id !== undefined, '/proc tells who this process is');
  return id;
}

export interface ShowInForce {
  readonly kind: 'in_force';
  readonly inForce: readonly SettingInForce[];
}

/** Either way. What is absolute may arrive twice. */
export interface PublishLog {
  readonly kind: 'log';
  readonly change: LogChange;
}

/** Either way. May arrive twice: it says that upstreams are well, which they still are. */
export interface PublishUpstreamReset {
  readonly kind: 'reset_upstreams';
  /** Of this model alone; undefined: of all. */
  readonly model: string | undefined;
}

export interface DrainGateway {
  readonly kind: 'drain';
  /**
   * Another gateway serves in its place: connections at rest are given time to come back with a last request.
   */
  readonly replaced: boolean;
}

export interface LeadGateway {
  readonly kind: 'lead';
}

export interface FollowGateway {
  readonly kind: 'follow';
}

export interface ReadGateway {
  readonly kind: 'read';
  /** Named again by the response. */
  readonly id: number;
  readonly what: SnapshotKind;
  /** Of `calls`: about these. */
  readonly accounts?: readonly string[] | undefined;
}

export interface SnapshotsReply {
  readonly kind: 'readings';
  /** Of the question. */
  readonly id: number;
  readonly readings: GroupSnapshot;
}

export interface ReloadGateway {
  readonly kind: 'reload';
  /** Named again by the response. */
  readonly id: number;
  /** Complete; what needs a restart is as it was at the start. */
  readonly settings: Settings;
  /** Change nothing, only say what speaks against it. */
  readonly check: boolean;
}

/** What became of a reload. */
export interface ReloadOutcome extends SettingsDifference {
  /** Why nothing was applied, each a whole line; empty if it was. */
  readonly problems: readonly string[];
  /** What was and would be; only where nothing was to be changed. */
  readonly changes?: readonly SettingChange[];
  /** Gateways that are being replaced one by one from now on; 0 if that was not asked for. */
  readonly replacing: number;
}

export interface ReloadReply {
  readonly kind: 'outcome';
  /** Of the question. */
  readonly id: number;
  readonly outcome: ReloadOutcome;
}

export type ToGateway =
  | StartGateway
  | ReloadGateway
  | ReloadReply
  | LeadGateway
  | FollowGateway
  | ReadGateway
  | SnapshotsReply
  | ShowInForce
  | PublishLog
  | PublishUpstreamReset
  | DrainGateway;

export interface GatewayReady {
  readonly kind: 'ready';
  /** The port in use, also if the setting is 0. */
  readonly port: number;
  /** Of its group's admin interface, whoever has it. */
  readonly adminPort: number;
  /** The demo account's, if there is one. */
  readonly demoAccountId: string | undefined;
  /** Shown once: undefined at every start but the one that made it. */
  readonly demoKey: string | undefined;
}

export interface GatewayRefused {
  readonly kind: 'refused';
  /** Says what is wrong and what to do; may have several lines. */
  readonly message: string;
}

export interface GatewayReloaded {
  readonly kind: 'reloaded';
  readonly id: number;
  /** Why the settings were not taken; empty if they were, or could be. */
  readonly problems: readonly string[];
}

export interface AskReload {
  readonly kind: 'ask_reload';
  readonly id: number;
  readonly request: ReloadRequest;
}

export interface ReloadRequest {
  /** Only tell what would change. */
  readonly dryRun: boolean;
  /** Replace the gateways one by one, for what needs a restart. */
  readonly restart: boolean;
}

export interface GatewayLeads {
  readonly kind: 'leads';
}

export interface GatewaySnapshot {
  readonly kind: 'reading';
  /** Of the question; 0 if there was none. */
  readonly id: number;
  readonly reading: Snapshot;
}

export interface AskSnapshots {
  readonly kind: 'ask_readings';
  readonly id: number;
  readonly what: SnapshotKind;
  /** Of `calls`: about these. */
  readonly accounts?: readonly string[] | undefined;
}

export type FromGateway =
  | GatewayReady
  | GatewayRefused
  | GatewayReloaded
  | GatewayLeads
  | GatewaySnapshot
  | AskSnapshots
  | AskReload
  | PublishLog
  | PublishUpstreamReset;

/** Call counts by outcome. The cost is a number so that processes' totals can be summed. */
export interface CallsStatus extends CallCounts {
  readonly outcomes: Readonly<Record<Outcome, number>>;
  readonly cost_pico_units: number;
}

/** The calls of a model that has had one. */
export interface ModelStatus extends CallsStatus {
  readonly id: string;
}

/** What one gateway process says of itself for `GET /admin/v1/status`. */
export interface ProcessStatus extends CallsStatus, RunStatus {
  readonly models: readonly ModelStatus[];
}

/** What a gateway can be asked for. Whichever gateway has the admin interface answers for all of them. */
export interface Snapshots {
  readonly metrics: MetricsSnapshot;
  readonly status: ProcessStatus;
  /** One of each process. */
  readonly accounts: readonly AccountReport[];
  /** Number of the newest change of the registry that it serves by. */
  readonly changes: number;
  /** Whether what it had settled is in the store. */
  readonly books: boolean;
  /** What its calls use of the accounts that are asked about. */
  readonly calls: readonly CallsUse[];
}

/**
 * Kinds that are asked for to have something done. A reply that was on its way before the question does not
 * count.
 */
export const ERRANDS: ReadonlySet<SnapshotKind> = new Set<SnapshotKind>(['changes', 'books']);

export type SnapshotKind = keyof Snapshots;

/** One process's reply. It has only the kind that was asked for. */
export type Snapshot = Partial<Snapshots>;

/** Of all processes of a supervisor. */
export interface GroupSnapshot {
  /**
   * Those that run. Figures of one that did not answer in time are its last; an errand it has then not
   * answered.
   */
  readonly members: readonly { readonly slot: number; readonly reading: Snapshot }[];
  /** Counters of the processes that have ended; empty if there were none. */
  readonly ended: Snapshot;
}
