/**
 * One slot among the gateways of a supervisor: the process that has it, or the pause before its next start.
 * Also the types that `ProcessGroup` is made and called with. Supervisor process.
 */
import type { Settings } from '../config/schema.js';
import type { Clock } from '../core/clock.js';
import type { MonotonicMs } from '../core/units.js';
import type {
  GatewayReady,
  PublishLog,
  ReloadOutcome,
  ReloadRequest,
  StartGateway,
  GroupSnapshot,
  Snapshot,
  SnapshotKind,
} from '../gateway/messages.js';
import { type GatewayExit, GatewayProcess, type GatewayProcessOptions } from './gateway-process.js';
import type { PrimaryCandidate } from './primary.js';
import type { Log } from '../telemetry/log.js';

export interface RestartPauses {
  readonly firstMs: number;
  readonly longestMs: number;
  /** A gateway that served for so long had started well: the pauses begin anew. */
  readonly healthyMs: number;
}

/**
 * The first restart is not noticed by a client that retries; a gateway that cannot start costs one try in ten
 * seconds.
 */
export const RESTART_PAUSES: RestartPauses = { firstMs: 100, longestMs: 10_000, healthyMs: 60_000 };

/** How long to wait before a gateway that ended is started again. */
export class RestartPolicy {
  readonly #clock: Clock;
  readonly #pauses: RestartPauses;
  #nextMs: number;
  #readySinceMs: MonotonicMs | undefined;

  constructor(clock: Clock, pauses: RestartPauses) {
    this.#clock = clock;
    this.#pauses = pauses;
    this.#nextMs = pauses.firstMs;
  }

  /** The gateway serves. */
  onReady(): void {
    this.#readySinceMs = this.#clock.monotonicMs();
  }

  /**
   * The gateway ended, ready or not. Returns the pause before its next start; each is twice the one before.
   */
  pauseAfterExitMs(): number {
    const { firstMs, longestMs, healthyMs } = this.#pauses;
    const since = this.#readySinceMs;
    this.#readySinceMs = undefined;
    if (since !== undefined && this.#clock.monotonicMs() - since >= healthyMs) this.#nextMs = firstMs;
    const pauseMs = this.#nextMs;
    this.#nextMs = Math.min(pauseMs * 2, longestMs);
    return pauseMs;
  }
}

export interface MemberOptions extends GatewayProcessOptions {
  readonly pauses: RestartPauses;
  readonly clock: Clock;
}

/** The group that it belongs to. */
export interface MemberOwner {
  /** What its next process is started with. */
  startOf(member: GroupMember): StartGateway;
  onReady(member: GroupMember, ready: GatewayReady): void;
  /** It has no process any more; `process` was it. */
  onExit(member: GroupMember, process: GatewayProcess, exit: GatewayExit): void;
  onLeads(member: GroupMember): void;
  onLastReading(member: GroupMember, snapshot: Snapshot): void;
  onReloadAsked(request: ReloadRequest): Promise<ReloadOutcome>;
  onReadingsAsked(what: SnapshotKind, accounts?: readonly string[]): Promise<GroupSnapshot>;
  onLogChanged(change: PublishLog['change']): void;
  onUpstreamsReset(model: string | undefined): void;
}

export class GroupMember implements PrimaryCandidate {
  readonly slot: number;
  /** What its next process gets; the present one has the same but for what was reloaded since its start. */
  settings: Settings;
  /**
   * It takes the place of another, which serves until this one does; until then its end is not the group's
   * concern.
   */
  isTrial: boolean;
  readonly #options: MemberOptions;
  readonly #owner: MemberOwner;
  readonly #policy: RestartPolicy;
  #process: GatewayProcess | undefined;
  #serves = false;
  #restart: NodeJS.Timeout | undefined;
  #retiring = false;
  #onStarted: (failure: string | undefined) => void = () => undefined;
  #onGone: () => void = () => undefined;

  constructor(
    options: MemberOptions,
    owner: MemberOwner,
    place: { readonly slot: number; readonly settings: Settings; readonly isTrial: boolean },
  ) {
    this.#options = options;
    this.#owner = owner;
    this.#policy = new RestartPolicy(options.clock, options.pauses);
    this.slot = place.slot;
    this.settings = place.settings;
    this.isTrial = place.isTrial;
  }

  get process(): GatewayProcess | undefined {
    return this.#process;
  }

  get isFit(): boolean {
    return this.#serves && !this.#retiring;
  }

  /** Another has its place. */
  get isRetiring(): boolean {
    return this.#retiring;
  }

  /** Starts its process now. Resolves when that serves, or with how it ended before it did. */
  start(): Promise<string | undefined> {
    clearTimeout(this.#restart);
    const started = new Promise<string | undefined>((resolve) => (this.#onStarted = resolve));
    this.#process = new GatewayProcess(this.#options, this.#owner.startOf(this), {
      onReady: (ready) => this.#onReady(ready),
      onExit: (exit) => this.#onExit(exit),
      onLeads: () => this.#owner.onLeads(this),
      onLastReading: (snapshot) => this.#owner.onLastReading(this, snapshot),
      onReloadAsked: (request) => this.#owner.onReloadAsked(request),
      onReadingsAsked: (what, accounts) => this.#owner.onReadingsAsked(what, accounts),
      onLogChanged: (change) => this.#owner.onLogChanged(change),
      onUpstreamsReset: (model) => this.#owner.onUpstreamsReset(model),
    });
    return started;
  }

  /** Starts its process after a pause, which grows with every time; returns it. */
  startLater(): number {
    const pauseMs = this.#policy.pauseAfterExitMs();
    this.#restart = setTimeout(() => void this.start(), pauseMs);
    return pauseMs;
  }

  lead(): void {
    this.#process?.lead();
  }

  follow(): void {
    this.#process?.follow();
  }

  /**
   * Whether it takes the settings, or with `check` could; one that waits for its restart is started now, to
   * be asked.
   */
  reload(settings: Settings, check: boolean): Promise<readonly string[]> {
    if (this.#process === undefined) void this.start();
    return this.#process!.reload(settings, check);
  }

  /** Asks it to finish its calls and end, and starts it no more. */
  drain(): void {
    clearTimeout(this.#restart);
    this.#process?.drain(false);
  }

  /**
   * The same where another serves in its place. Resolves when it has ended, which after `waitMsMax` it is
   * made to.
   */
  async retire(waitMsMax: number): Promise<void> {
    this.#retiring = true;
    clearTimeout(this.#restart);
    if (this.#process === undefined) return;
    const gone = new Promise<void>((resolve) => (this.#onGone = resolve));
    const killTimer = setTimeout(() => this.kill(), waitMsMax);
    this.#process.drain(true);
    await gone;
    clearTimeout(killTimer);
  }

  kill(): void {
    this.#process?.kill();
  }

  #onReady(ready: GatewayReady): void {
    this.#serves = true;
    this.isTrial = false;
    this.#policy.onReady();
    this.#owner.onReady(this, ready);
    this.#onStarted(undefined);
  }

  #onExit(exit: GatewayExit): void {
    const process = this.#process!;
    this.#process = undefined;
    this.#serves = false;
    this.#owner.onExit(this, process, exit);
    this.#onStarted(exit.refusal ?? exit.how);
    this.#onGone();
  }
}

/** What a group of gateways is given. */
export interface GroupOptions extends MemberOptions {
  readonly settings: Settings;
  readonly demo: boolean;
  /** The settings as an operator looks at them. */
  readonly inForce: StartGateway['inForce'];
  /** `id` of GroupPosition. */
  readonly groupId: string;
  readonly log: Log;
}

export interface GroupEnd {
  /** 0 if every gateway was asked to end and ended with 0. */
  readonly exitCode: 0 | 1;
  /** Why a gateway cannot run; for the operator, may have several lines. */
  readonly refusal: string | undefined;
}

export interface GroupCallbacks {
  /** Once, when the first gateway serves. */
  onReady(ready: GatewayReady): void;
  /** A gateway's operator asks for a reload; must not reject. */
  onReloadAsked(request: ReloadRequest): Promise<ReloadOutcome>;
}

/** A replacement that has begun. */
export interface Replacement {
  /** Gateways that are replaced. */
  readonly count: number;
  /** When all are: undefined; or why the rest stay as they are. */
  readonly done: Promise<string | undefined>;
}
