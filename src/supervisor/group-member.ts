/**
 * A member of the process group: a slot with its process, or with the pause before the next process starts.
 * ProcessGroup (process-group.ts) creates the members, in the supervisor process. The types of its options,
 * callbacks and results are at the end of this file.
 *
 * Must hold:
 * - A member has at most one process at a time, since two would have one slot
 *   (test/unit/supervisor/group-member.start-later.test.ts).
 * - The pauses between starts are those of a RestartPolicy (core/restart-policy.ts).
 * - A fork that fails is tried again after a pause (test/unit/supervisor/group-member.start-later.test.ts).
 */
import type { Settings } from '../config/schema.js';
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { type RestartPauses, RestartPolicy } from '../core/restart-policy.js';
import type { GatewayReady, StartGateway, Snapshot } from '../gateway/messages.js';
import {
  type GatewayExit,
  GatewayProcess,
  type GatewayProcessOptions,
  type GatewayRequests,
} from './gateway-process.js';
import { callLater } from './late-timer.js';
import type { PrimaryCandidate } from './primary.js';

/** Clients that retry do not notice the first pause. A gateway that cannot start is tried every 10 s. */
export const RESTART_PAUSES: RestartPauses = { firstMs: 100, longestMs: 10_000, healthyMs: 60_000 };

interface MemberOptions extends GatewayProcessOptions {
  readonly pauses: RestartPauses;
  readonly clock: Clock;
}

/**
 * What a member needs of its group; ProcessGroup implements it. A callback without a comment means what the
 * one of the same name in GatewayCallbacks (gateway-process.ts) means.
 */
export interface MemberOwner extends GatewayRequests {
  /** The member starts a process. Returns the message for it. Called once for each process. */
  onStart(member: GroupMember): StartGateway;
  /** `member.hasServed` is still that of its former processes. */
  onReady(member: GroupMember, process: GatewayProcess, ready: GatewayReady): void;
  /** The member's process has ended. Must not throw, nor start a process at once (`startLater` may). */
  onExit(member: GroupMember, process: GatewayProcess, exit: GatewayExit): void;
  onLeads(member: GroupMember): void;
  onLastSnapshot(process: GatewayProcess, snapshot: Snapshot): void;
}

export class GroupMember implements PrimaryCandidate {
  readonly slot: number;
  /** The settings of the next process. The running process may have others of those that need a restart. */
  settings: Settings;
  readonly #options: MemberOptions;
  readonly #owner: MemberOwner;
  readonly #policy: RestartPolicy;
  #process: GatewayProcess | undefined;
  #isTrial: boolean;
  #serves = false;
  #hasServed = false;
  #restartTimer: NodeJS.Timeout | undefined;
  #retiring = false;
  #rejected = false;
  /** Resolves the promise of `start`. */
  #onStarted: (failure: string | undefined) => void = () => undefined;
  /** Resolves the promise of `retire`. */
  #onRetired: () => void = () => undefined;

  constructor(
    options: MemberOptions,
    owner: MemberOwner,
    start: { readonly slot: number; readonly settings: Settings; readonly isTrial: boolean },
  ) {
    this.#options = options;
    this.#owner = owner;
    this.#policy = new RestartPolicy(options.clock, options.pauses);
    this.slot = start.slot;
    this.settings = start.settings;
    this.#isTrial = start.isTrial;
  }

  /** Undefined before the first start, during a pause, and after the process has ended. */
  get process(): GatewayProcess | undefined {
    return this.#process;
  }

  /** Whether the member's process serves and is not being replaced. */
  get isFit(): boolean {
    return this.#serves && !this.#retiring;
  }

  /** Whether a process of the member has served, this one or a former one. */
  get hasServed(): boolean {
    return this.#hasServed;
  }

  /** Whether the member is to replace another and has not taken over. Its exit then ends no group. */
  get isTrial(): boolean {
    return this.#isTrial;
  }

  /** Call it when the member has taken over: from then on it is like any other. */
  endTrial(): void {
    this.#isTrial = false;
  }

  /** Whether another member replaces this one. */
  get isRetiring(): boolean {
    return this.#retiring;
  }

  /** Whether the member's last process rejected its start. */
  get isRejected(): boolean {
    return this.#rejected;
  }

  /**
   * Starts a process; an invariant fails if one runs. Resolves with undefined when the process serves, or
   * with the reason if it ended before.
   */
  start(): Promise<string | undefined> {
    invariant(this.#process === undefined, 'a member has one process at a time');
    clearTimeout(this.#restartTimer);
    const started = new Promise<string | undefined>((resolve) => (this.#onStarted = resolve));
    const process: GatewayProcess = new GatewayProcess(this.#options, this.#owner.onStart(this), {
      onReady: (ready) => this.#onReady(process, ready),
      onExit: (exit) => this.#onExit(process, exit),
      onLeads: () => this.#owner.onLeads(this),
      onLastSnapshot: (snapshot) => this.#owner.onLastSnapshot(process, snapshot),
      requests: this.#owner,
    });
    this.#process = process;
    return started;
  }

  /** Call it once for each exit: it starts a process after a pause (RestartPolicy). Returns the pause. */
  startLater(): number {
    const pauseMs = this.#policy.pauseAfterExitMs();
    this.#restartTimer = setTimeout(() => void this.start(), pauseMs);
    return pauseMs;
  }

  /** Does nothing without a process, like `follow`: Primary learns of each exit (`onEnd`). */
  lead(): void {
    this.#process?.send({ kind: 'lead' });
  }

  follow(): void {
    this.#process?.send({ kind: 'follow' });
  }

  /**
   * As GatewayProcess.reload. A member that waits for its restart is started now, so the group must not call
   * this after `drain`. A process that is being replaced gets the settings too, because it still takes the
   * last call of each connection. It is not asked with `check`, and its problems are ignored.
   */
  async reload(settings: Settings, { check }: { readonly check: boolean }): Promise<readonly string[]> {
    if (this.#retiring) {
      if (!check) await this.#process?.reload(settings, { check: false });
      return [];
    }
    if (this.#process === undefined) void this.start();
    return this.#process!.reload(settings, { check });
  }

  /** Asks the member's process to finish its calls and end. The group must not start the member again. */
  drain(): void {
    clearTimeout(this.#restartTimer);
    this.#process?.send({ kind: 'drain', replaced: false });
  }

  /**
   * Asks the process to finish its calls and end, because another member serves in its place. Kills it after
   * `waitMsMax` milliseconds. Resolves when it has ended.
   */
  async retire(waitMsMax: number): Promise<void> {
    this.#retiring = true;
    clearTimeout(this.#restartTimer);
    if (this.#process === undefined) return;
    const ended = new Promise<void>((resolve) => (this.#onRetired = resolve));
    const cancelKill = callLater(waitMsMax, () => this.kill(`not ended after ${waitMsMax} ms, killed`));
    this.#process.send({ kind: 'drain', replaced: true });
    await ended;
    cancelKill();
  }

  /**
   * Kills the process. Does not end a pause: the group has called `drain` or `retire` before, which do.
   * `reason`: as in GatewayProcess.
   */
  kill(reason: string): void {
    this.#process?.kill(reason);
  }

  #onReady(process: GatewayProcess, ready: GatewayReady): void {
    this.#serves = true;
    this.#rejected = false;
    this.#policy.onReady();
    this.#owner.onReady(this, process, ready);
    this.#hasServed = true;
    this.#onStarted(undefined);
  }

  #onExit(process: GatewayProcess, exit: GatewayExit): void {
    // The owner, which is called below, must see a member without a process.
    this.#process = undefined;
    this.#serves = false;
    this.#rejected = exit.rejection !== undefined;
    this.#owner.onExit(this, process, exit);
    this.#onStarted(exit.rejection ?? exit.how);
    this.#onRetired();
  }
}

export interface GroupOptions extends MemberOptions {
  readonly settings: Settings;
  readonly demo: boolean;
  /** The settings as operators see them. */
  readonly inForce: StartGateway['inForce'];
  /** The `id` of GroupPosition in gateway/messages.ts. */
  readonly groupId: string;
}

export interface GroupEnd {
  /** 0 if the group was asked to end and every gateway then exited with 0. */
  readonly exitCode: 0 | 1;
  /** Why no gateway can run, for the operator; undefined if one could. May have several lines. */
  readonly rejection: string | undefined;
}

export interface GroupCallbacks extends Pick<GatewayRequests, 'onReloadRequested'> {
  /** Called once, when the first gateway serves. */
  onReady(ready: GatewayReady): void;
}

export interface Replacement {
  readonly count: number;
  /** Resolves with undefined when all are replaced, or with the reason why the others stay. Never rejects. */
  readonly done: Promise<string | undefined>;
}
