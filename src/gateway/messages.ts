/**
 * The messages between the supervisor and a gateway process, and the snapshots in them. (The names of
 * messages call a snapshot a `reading`.) They go over the IPC channel of `fork` ('advanced' serialization),
 * between main.ts with supervisor-link.ts and supervisor/gateway-process.ts. A _group_ is a process group
 * here.
 *
 * Must hold: a gateway carries out `reset_upstreams` and `clear_cache` as they come, because its reply to a
 * later `read` confirms them (test/e2e/upstream-reset.test.ts). The two processes may be of different
 * versions, so kinds and members keep their names, and `settings` may lack members
 * (test/e2e/other-version.test.ts). Further tests: test/unit/supervisor/process-group.test.ts,
 * test/e2e/processes.test.ts.
 *
 * A terminal sends SIGINT and SIGHUP to the gateway too, and a service manager SIGTERM. The gateway ignores
 * all three and waits for `drain`. If the supervisor dies, even by kill -9, the gateway gets 'disconnect' and
 * drains by itself, so no gateway is left without a supervisor.
 */
import type { Settings } from '../config/schema.js';
import type { SettingChange, SettingInForce, SettingsDifference } from '../config/settings-in-force.js';
import type { LogChange } from '../telemetry/log-switch.js';
import type { CallsUse } from '../sharing/sharing-stats.js';
import type { Outcome } from '../telemetry/metrics-layout.js';
import type { MetricsSnapshot } from '../telemetry/metrics-snapshot.js';
import type { CallCounts, RunStatus } from '../telemetry/status-document.js';
import type { AccountReport } from '../telemetry/account-history.js';

/** EX_CONFIG of sysexits.h: another start would end in the same way, so the supervisor makes none. */
export const START_REJECTED_EXIT_CODE = 78;

/** How often a gateway sends `alive`. The supervisor kills a gateway that is silent for many such periods. */
export const ALIVE_PERIOD_MS = 10_000;

/**
 * The first message, sent once. The settings have the providers' keys, which `ps` would show in an argument
 * or a variable.
 */
export interface StartGateway {
  readonly kind: 'start';
  /** All settings. From the second start on, the ports are those that the first start got. */
  readonly settings: Settings;
  /** Whether the built-in demo runs. It creates a demo account in an empty store. */
  readonly demo: boolean;
  /** The settings as operators see them, without secrets. */
  readonly inForce: readonly SettingInForce[];
  /** Present if several gateways share a data directory and its limits. */
  readonly group?: GroupPosition | undefined;
  /** Whether the gateway opens the admin interface at its start; otherwise only at `lead`. */
  readonly leads: boolean;
  /**
   * Whether other gateways of the group listen on the ports already. The gateway then shares the ports with
   * them and need not check that they are free.
   */
  readonly joins: boolean;
  /** Whether a gateway of the group has served before: nobody waits for the reason if it cannot start. */
  readonly isRestart: boolean;
}

/** Which group a gateway is in, and its slot there. */
export interface GroupPosition {
  /** Text that no other supervisor ever has. Gateways with the same id may share the data directory. */
  readonly id: string;
  /** From 0. No two running gateways have the same slot. The successor of a gateway has its slot. */
  readonly slot: number;
}

/**
 * What an operator of some gateway changes at all gateways. That gateway sends the message to the supervisor,
 * which sends it to every gateway, the sender too. A gateway may carry it out twice, which does no harm.
 */
export type Broadcast = { readonly kind: 'log'; readonly change: LogChange } | PublishReset;

/** Closes breakers, or clears the response cache. */
export interface PublishReset {
  readonly kind: 'reset_upstreams' | 'clear_cache';
  /** The model whose upstreams are reset, or whose cached responses are removed; undefined for all models. */
  readonly model: string | undefined;
}

/**
 * A reload by a signal or by a changed file, for the record of changes. Sent to the primary alone, and again
 * to the next primary if the process ends before it has replied.
 */
export interface RecordReload {
  readonly kind: 'record_reload';
  /** The reply repeats this id. Undefined if it comes from a supervisor of a version without replies. */
  readonly id?: number;
  readonly changes: ReloadOutcome['changes'] | undefined;
  /** As in ReloadOutcome. */
  readonly replacing: number;
  readonly by: 'signal' | 'watch';
}

/** Asks for a snapshot. */
export interface ReadGateway {
  readonly kind: 'read';
  /** The reply repeats this id. */
  readonly id: number;
  readonly what: SnapshotKind;
  /** For `calls`: the accounts in question. */
  readonly accounts?: readonly string[] | undefined;
}

/** Reply to `ask_readings`. */
export interface SnapshotsReply {
  readonly kind: 'readings';
  /** The id of `ask_readings`. */
  readonly id: number;
  readonly readings: GroupSnapshot;
}

/** Asks the gateway to apply settings. */
export interface ReloadGateway {
  readonly kind: 'reload';
  /** The reply repeats this id. */
  readonly id: number;
  /** All settings. Those that need a restart have the values of the start. */
  readonly settings: Settings;
  /** Whether to reply with the problems of the settings only, and to change nothing. */
  readonly check: boolean;
}

export interface ReloadOutcome extends SettingsDifference {
  /** Why nothing was applied, a line for each problem; empty if all was applied. */
  readonly problems: readonly string[];
  /** The old and the new values: of both lists in a dry run, else of what was applied. */
  readonly changes?: readonly SettingChange[];
  /** How many gateways are being replaced one by one; 0 if no replacement was asked for. */
  readonly replacing: number;
}

/** Reply to `ask_reload`. */
export interface ReloadReply {
  readonly kind: 'outcome';
  /** The id of `ask_reload`. */
  readonly id: number;
  readonly outcome: ReloadOutcome;
}

export type ToGateway =
  | StartGateway
  | ReloadGateway
  | ReloadReply
  /** `lead`: open the admin interface too, which another gateway has. */
  | { readonly kind: 'lead' }
  /** Another gateway has the admin interface: no new connections. */
  | { readonly kind: 'follow' }
  | ReadGateway
  | SnapshotsReply
  /** The settings that operators are shown, after a reload. */
  | { readonly kind: 'in_force'; readonly inForce: readonly SettingInForce[] }
  | Broadcast
  | RecordReload
  /**
   * Stop accepting, let calls in flight finish, flush, exit 0. `replaced`: another gateway serves in its
   * place, so idle connections get time for a last request.
   */
  | { readonly kind: 'drain'; readonly replaced: boolean };

/** Sent once: the gateway serves. */
export interface GatewayReady {
  readonly kind: 'ready';
  /** The port in use, even if the setting is 0. */
  readonly port: number;
  /** The port of the group's admin interface, whichever gateway has it. */
  readonly adminPort: number;
  /** The account of the demo; undefined if there is none. */
  readonly demoAccountId: string | undefined;
  /** The key of the demo, at the start that created it; undefined at every other start. */
  readonly demoKey: string | undefined;
}

/** An operator asks for a reload. Only the supervisor knows the name of the file and has the environment. */
export interface AskReload {
  readonly kind: 'ask_reload';
  readonly id: number;
  readonly request: ReloadRequest;
}

export interface ReloadRequest {
  /** Whether to report only what would change. */
  readonly dryRun: boolean;
  /** Whether to replace the gateways one by one too, for settings that need a restart. */
  readonly restart: boolean;
}

/** The id of the last snapshot, which no `read` asked for. The ids of questions are greater. */
export const LAST_SNAPSHOT_ID = 0;

/** Reply to `read`; or, unasked before the end, the last snapshot. */
export interface GatewaySnapshot {
  readonly kind: 'reading';
  /** The id of `read`, or LAST_SNAPSHOT_ID. */
  readonly id: number;
  readonly reading: Snapshot;
}

/** An operator asks for the snapshots of all gateways. */
export interface AskSnapshots {
  readonly kind: 'ask_readings';
  readonly id: number;
  readonly what: SnapshotKind;
  /** For `calls`: the accounts in question. */
  readonly accounts?: readonly string[] | undefined;
}

export type FromGateway =
  | GatewayReady
  /**
   * Sent once, instead of `ready`: the gateway cannot run with these settings or this data. It then exits
   * with START_REJECTED_EXIT_CODE, and the group ends too, unless other gateways serve or are to be tried.
   * `message`: what is wrong, and what the operator should do; may have several lines.
   */
  | { readonly kind: 'refused'; readonly message: string }
  /**
   * Reply to `reload`, whose id it repeats. `problems`: why the settings were not or could not be applied.
   */
  | { readonly kind: 'reloaded'; readonly id: number; readonly problems: readonly string[] }
  /** The main thread does not hang; every ALIVE_PERIOD_MS after `ready`. */
  | { readonly kind: 'alive' }
  /** The admin interface is open; only after `lead`. */
  | { readonly kind: 'leads' }
  /** Reply to `record_reload`, whose id it repeats: it is recorded, or the log says why not. */
  | { readonly kind: 'recorded'; readonly id: number | undefined }
  | GatewaySnapshot
  | AskSnapshots
  | AskReload
  | Broadcast;

/** Counts of calls. */
export interface CallsStatus extends CallCounts {
  readonly outcomes: Readonly<Record<Outcome, number>>;
  /** In the document for operators this is decimal money (group-status.ts). */
  readonly cost_pico_units: bigint;
}

/** The calls of a model that has had at least one. */
export interface ModelStatus extends CallsStatus {
  readonly id: string;
}

/** What one gateway process gives to `GET /admin/v1/status`. */
export interface ProcessStatus extends CallsStatus, RunStatus {
  readonly models: readonly ModelStatus[];
}

/** The snapshots for which the gateway with the admin interface asks, by kind. */
interface Snapshots {
  readonly metrics: MetricsSnapshot;
  readonly status: ProcessStatus;
  /** One report for each process. */
  readonly accounts: readonly AccountReport[];
  /** The number of the newest change of the registry that the gateway has applied. */
  readonly changes: number;
  /** Whether everything that the gateway had settled is in the store. */
  readonly books: boolean;
  /** What the gateway's calls use of the accounts in question. */
  readonly calls: readonly CallsUse[];
}

/**
 * Kinds that make the gateway do something first: apply the registry's changes, or flush. A reply to an
 * earlier question is no reply to a later one (test/unit/supervisor/group-snapshots.test.ts).
 */
export const GROUP_REQUESTS: ReadonlySet<SnapshotKind> = new Set<SnapshotKind>(['changes', 'books']);

export type SnapshotKind = keyof Snapshots;

/** One process's reply. It has only the kind that was asked for. */
export type Snapshot = Partial<Snapshots>;

/** The snapshots of all processes of a supervisor. */
export interface GroupSnapshot {
  /** The running processes. One without a reply has its latest snapshot, but no GROUP_REQUESTS or `calls`. */
  readonly members: readonly { readonly slot: number; readonly reading: Snapshot }[];
  /** The counters of the processes that have ended; empty if there are none. */
  readonly ended: Snapshot;
}

/** No process has a snapshot: stands for the reply of a supervisor that does not reply, or was not asked. */
export const NO_SNAPSHOTS: GroupSnapshot = { members: [], ended: {} };
