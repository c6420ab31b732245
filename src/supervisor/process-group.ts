/**
 * Starts the gateway processes, restarts those that end, replaces them one by one, and stops them.
 * supervisor.ts creates one group, in the supervisor process.
 *
 * The first gateway starts alone. If it ends before it has served, the group ends: most often another start
 * would fail in the same way, and the operator who starts the group should see why at once.
 *
 * A member is a slot of the group and the process in it (GroupMember). A process serves from its message
 * `ready` on. A member is fit if its process serves and is not being replaced. A member is a trial while it
 * is to replace another member and has not taken over. The primary is the member whose process has the admin
 * interface, or was told to open it (`lead`).
 *
 * Must hold (test/unit/supervisor/process-group.test.ts, where no other file is named):
 * - What operators have changed of the log since the last reload is in force at every gateway.
 * - The ports of the first gateway are kept for every later start, so that port 0 stays the same port for the
 *   life of the supervisor: no reload or replacement changes them, because they need a restart
 *   (test/e2e/shutdown.test.ts).
 * - `#onMemberExit` awaits nothing, because replacement.ts relies on what it leaves in `#members`.
 */
import { adoptLive, adoptReplaced } from '../config/settings-adoption.js';
import type { Settings } from '../config/schema.js';
import { invariant } from '../core/errors.js';
import type {
  GatewayReady,
  RecordReload,
  ReloadRequest,
  StartGateway,
  ToGateway,
} from '../gateway/messages.js';
import type { LogChange } from '../telemetry/log-switch.js';
import type { GatewayExit, GatewayProcess } from './gateway-process.js';
import {
  GroupMember,
  type GroupCallbacks,
  type GroupEnd,
  type GroupOptions,
  type Replacement,
} from './group-member.js';
import { GroupSnapshots } from './group-snapshots.js';
import { callLater } from './late-timer.js';
import { Primary } from './primary.js';
import { type ReplacedGroup, replaceOneByOne } from './replacement.js';
import { UnrecordedReloads } from './unrecorded-reloads.js';

export class ProcessGroup {
  readonly #options: GroupOptions;
  readonly #callbacks: GroupCallbacks;
  /** At most `processes` members, and during a replacement one more. */
  readonly #members: GroupMember[];
  readonly #primary = new Primary<GroupMember>();
  readonly #snapshots = new GroupSnapshots();
  readonly #ended: Promise<GroupEnd>;
  #resolveEnded!: (end: GroupEnd) => void;
  /**
   * The settings of the start, with the ports of the first gateway, and with what reloads have changed. A
   * replacement changes only `GroupMember.settings`. The group itself reads `processes` and `sharing`, which
   * need a restart, and `drain_timeout_ms`, which applies at a reload.
   */
  #settings: Settings;
  /** The settings as operators see them, for gateways that start. */
  #inForce: StartGateway['inForce'];
  /**
   * What operators have changed of the log since the last reload. A gateway forgets the change when it
   * applies settings, and a gateway that starts does not know it, so the group then sends the change again.
   */
  #logChange: LogChange = {};
  readonly #unrecorded = new UnrecordedReloads();
  /** Whether a gateway has served since the start of the group. */
  #hasServed = false;
  /** The settings of members that the replacement in progress adds; undefined if there is none. */
  #replacing: Settings | undefined;
  #stopping = false;
  /** Whether a gateway did not exit with 0 after the stop. */
  #hasFailed = false;
  /** Why no gateway can run, for the operator; undefined while one can. */
  #rejection: string | undefined;
  /** Cancels the timer of `drain` that kills. */
  #cancelKill: () => void = () => undefined;

  /** Starts the first gateway at once, and the others when it serves. */
  constructor(options: GroupOptions, callbacks: GroupCallbacks) {
    this.#options = options;
    this.#callbacks = callbacks;
    this.#settings = options.settings;
    this.#inForce = options.inForce;
    this.#ended = new Promise((resolve) => (this.#resolveEnded = resolve));
    this.#members = Array.from({ length: options.settings.processes }, (_, slot) =>
      this.#memberOf({ slot, isTrial: false }),
    );
    void this.#members[0]!.start();
  }

  /** Resolves when no gateway runs and none will be started. */
  get ended(): Promise<GroupEnd> {
    return this.#ended;
  }

  get drainTimeoutMs(): number {
    return this.#settings.drain_timeout_ms;
  }

  /**
   * Asks all gateways whether they can apply the settings. If they can, and without `dryRun`, sends them the
   * settings that apply at a reload, and later to those that start. Resolves with the problems. If there are
   * any, all settings stay as before, also at gateways that had applied new ones, and so does what operators
   * have changed of the log. Reloads makes one call at a time.
   */
  async reload(next: Settings, { dryRun }: Pick<ReloadRequest, 'dryRun'>): Promise<readonly string[]> {
    if (!this.#hasServed) return ['the gateway is still starting; reload again when it serves'];
    if (this.#stopping) return ['the gateway is stopping'];
    const checkProblems = await this.#reloadAll(next, { check: true });
    if (checkProblems.length > 0 || dryRun) return checkProblems;
    if (this.#isStopping()) return ['the gateway is stopping'];
    // All gateways can apply the settings. From here on a gateway that starts again gets the new ones.
    const settingsBefore = this.#settings;
    const logChangeBefore = this.#logChange;
    this.#logChange = {};
    this.#adopt(next);
    const problems = await this.#reloadAll(next, { check: false });
    if (problems.length === 0) {
      // Gateways that got a change of the log before they applied the settings have lost it.
      for (const member of this.#members) this.#sendLogChange(member);
      return problems;
    }
    this.#logChange = { ...logChangeBefore, ...this.#logChange };
    // Gateways that have applied `next` would bill and admit by it, while operators see the former settings.
    this.#adopt(settingsBefore);
    // `GroupMember.reload` starts a process for a member that has none.
    if (this.#isStopping()) return problems;
    const undoProblems = await this.#reloadAll(settingsBefore, { check: false });
    for (const member of this.#members) this.#sendLogChange(member);
    return [...new Set([...problems, ...undoProblems])];
  }

  /** Replaces the settings that operators see, at every gateway and at those started later. */
  showInForce(inForce: StartGateway['inForce']): void {
    this.#inForce = inForce;
    this.#broadcast({ kind: 'in_force', inForce });
  }

  /**
   * Asks the gateway with the admin interface to record the reload among the changes of operators. If none
   * serves now, or if that one ends before it has, the next is asked (UnrecordedReloads).
   */
  recordReload(reload: Omit<RecordReload, 'kind' | 'id'>): void {
    const dropped = this.#unrecorded.add(reload);
    if (dropped !== undefined)
      this.#options.log.error('a reload is not recorded: no gateway has done it for long', {
        by: dropped.by,
      });
    this.#sendUnrecorded();
  }

  #sendUnrecorded(): void {
    const { current } = this.#primary;
    if (current?.isFit === true && current.process !== undefined) this.#unrecorded.sendTo(current.process);
  }

  /** Why the gateways cannot be replaced now; undefined if they can. */
  get replaceProblem(): string | undefined {
    if (!this.#hasServed) return 'the gateway is still starting';
    if (this.#stopping) return 'the gateway is stopping';
    if (this.#replacing !== undefined)
      return 'the gateways are being replaced already; ask again when that has ended';
    if (!this.#isShared)
      return 'a single gateway process cannot be replaced while it serves, for limits and money are its own: set processes to 2 or more, share them with `sharing`, or stop and start';
    return undefined;
  }

  /**
   * Begins to replace the gateways one by one. The new ones run with `next` and the program on disk now.
   * Throws if there is a `replaceProblem`, except that the gateways stop: then nothing is replaced.
   */
  replace(next: Settings): Replacement {
    invariant(
      this.#stopping || this.replaceProblem === undefined,
      'gateways are replaced only if they can be',
    );
    this.#replacing = adoptReplaced(this.#settings, next);
    const count = this.#members.length;
    const done = replaceOneByOne(this.#replacedGroup(), this.#options).finally(
      () => (this.#replacing = undefined),
    );
    return { count, done };
  }

  #replacedGroup(): ReplacedGroup {
    return {
      members: () => [...this.#members],
      isStopping: () => this.#stopping,
      primary: this.#primary,
      addTrial: () => {
        const trial = this.#memberOf({ slot: this.#freeSlot(), isTrial: true }, this.#replacing);
        this.#members.push(trial);
        return trial;
      },
      retire: (member) => this.#retire(member),
    };
  }

  /** Ends the member's process, if it has one, and removes the member. */
  async #retire(member: GroupMember): Promise<void> {
    // The drain timeout counts twice here, but not in `drain`: a gateway that is replaced keeps idle
    // connections for that time, and a call that comes on one has the full timeout again (Gateway.drain).
    await member.retire(this.#endMsMax() + this.drainTimeoutMs);
    this.#forget(member);
  }

  /** Asks every gateway to finish its calls and end, and kills those that exceed their time. Idempotent. */
  drain(): void {
    if (this.#stopping) return;
    this.#stopping = true;
    const waitMs = this.#endMsMax();
    this.#cancelKill = callLater(waitMs, () => {
      this.#options.log.error('a gateway did not end in time and is killed', { waited_ms: waitMs });
      this.kill();
    });
    for (const member of this.#members) member.drain();
    this.#endIfEmpty();
  }

  /** Kills every gateway. Calls in flight are cut, and charges since the last flush may be lost. */
  kill(): void {
    this.drain();
    for (const member of this.#members) member.kill('killed as the gateway stops');
  }

  /** The time that a gateway has to end after `drain`, in milliseconds. */
  #endMsMax(): number {
    return this.drainTimeoutMs + this.#options.exitGraceMs;
  }

  /** Creates a member without a process; the caller adds it to `#members` and starts it. */
  #memberOf(
    { slot, isTrial }: { readonly slot: number; readonly isTrial: boolean },
    settings = this.#settings,
  ): GroupMember {
    return new GroupMember(
      this.#options,
      {
        onStart: (member) => this.#onMemberStart(member),
        onReady: (member, process, ready) => this.#onMemberReady(member, process, ready),
        onExit: (member, process, exit) => this.#onMemberExit(member, process, exit),
        onLeads: (member) => this.#primary.onLeads(member),
        onLastSnapshot: (process, snapshot) => this.#snapshots.recordLast(process, snapshot),
        onRecorded: (id) => this.#unrecorded.remove(id),
        onReloadRequested: (request) => this.#callbacks.onReloadRequested(request),
        onSnapshotsRequested: (kind, accounts) => this.#snapshots.collect(kind, accounts),
        onBroadcast: (message) => {
          if (message.kind === 'log') this.#logChange = { ...this.#logChange, ...message.change };
          this.#broadcast(message);
        },
      },
      { slot, settings, isTrial },
    );
  }

  /** Sends again what operators have changed of the log, if anything. To repeat a change does no harm. */
  #sendLogChange(member: GroupMember): void {
    if (Object.keys(this.#logChange).length > 0)
      member.process?.send({ kind: 'log', change: this.#logChange });
  }

  #broadcast(message: ToGateway): void {
    for (const member of this.#members) member.process?.send(message);
  }

  /** Whether a second gateway may use the data directory together with the first. */
  get #isShared(): boolean {
    return this.#settings.processes > 1 || this.#settings.sharing !== undefined;
  }

  /** Makes the member the primary if there is none. Returns the message that starts its process. */
  #onMemberStart(member: GroupMember): StartGateway {
    const { demo, groupId } = this.#options;
    const inForce = this.#inForce;
    // A gateway that starts with `leads` opens the admin interface by itself, and sends no message `leads`.
    const leads = this.#primary.current === undefined;
    if (leads) this.#primary.begin(member);
    return {
      kind: 'start',
      settings: member.settings,
      demo,
      inForce,
      ...(this.#isShared ? { group: { id: groupId, slot: member.slot } } : {}),
      leads,
      // Other gateways of the group may listen on the ports already.
      joins: this.#isShared && this.#hasServed,
      isRestart: this.#hasServed,
    };
  }

  /** Returns the lowest free slot, so that at most one slot beyond the usual number is used. */
  #freeSlot(): number {
    const used = new Set(this.#members.map(({ slot }) => slot));
    let slot = 0;
    while (used.has(slot)) slot += 1;
    return slot;
  }

  /** Adopts the settings that apply at a reload, for the group, all members and those still to come. */
  #adopt(next: Settings): void {
    this.#settings = adoptLive(this.#settings, next);
    this.#replacing &&= adoptLive(this.#replacing, next);
    for (const member of this.#members) member.settings = adoptLive(member.settings, next);
  }

  /**
   * Sends the settings to all gateways; with `check` only asks whether they could apply them. Returns the
   * problems, each once.
   */
  async #reloadAll(next: Settings, mode: { readonly check: boolean }): Promise<readonly string[]> {
    const replies = this.#members.map((member) => member.reload(adoptLive(member.settings, next), mode));
    return [...new Set((await Promise.all(replies)).flat())];
  }

  #onMemberReady(member: GroupMember, process: GatewayProcess, ready: GatewayReady): void {
    this.#snapshots.add(process, member.slot);
    this.#primary.onFit(member);
    this.#sendUnrecorded();
    this.#sendLogChange(member);
    if (this.#hasServed) {
      // At its first start a further process logs the line `gateway serves` itself.
      if (member.hasServed) this.#options.log.info('gateway serves again', { port: ready.port });
      return;
    }
    this.#hasServed = true;
    this.#settings = withPorts(this.#settings, ready);
    for (const each of this.#members) each.settings = withPorts(each.settings, ready);
    this.#callbacks.onReady(ready);
    if (!this.#stopping) this.#members.slice(1).forEach((waiting) => void waiting.start());
  }

  #onMemberExit(member: GroupMember, process: GatewayProcess, exit: GatewayExit): void {
    this.#snapshots.remove(process);
    this.#primary.onEnd(member, this.#members);
    this.#unrecorded.onEnd(process);
    this.#sendUnrecorded();
    if (this.#stopping) this.#hasFailed ||= !exit.clean;
    else if (member.isTrial) this.#forget(member);
    else if (!member.isRetiring) this.#onUnexpectedExit(member, exit);
    else if (!exit.clean)
      this.#options.log.error('a gateway that was replaced did not end well', { how: exit.how });
    this.#endIfEmpty();
  }

  #onUnexpectedExit(member: GroupMember, { how, rejection }: GatewayExit): void {
    if (!this.#hasServed) {
      this.#reject(rejection ?? `the gateway ended before it was ready (${how})`);
      return;
    }
    // If another member's last start was not rejected, the reason, such as a full disk, may pass by itself.
    if (rejection !== undefined && this.#members.every(({ isRejected }) => isRejected)) {
      this.#reject(rejection);
      return;
    }
    this.#options.log.warn('gateway ended unasked and is started again', {
      how: rejection === undefined ? how : `${how}: ${rejection}`,
      pause_ms: member.startLater(),
    });
  }

  /** Removes a member whose process has ended. */
  #forget(member: GroupMember): void {
    const index = this.#members.indexOf(member);
    if (index !== -1) this.#members.splice(index, 1);
  }

  /** Ends the group: no gateway can run with these settings or this data. */
  #reject(reason: string): void {
    this.#rejection ??= reason;
    this.drain();
  }

  /** A method, so that TypeScript does not assume the value from before an `await`. */
  #isStopping(): boolean {
    return this.#stopping;
  }

  #endIfEmpty(): void {
    if (!this.#stopping || this.#members.some((member) => member.process !== undefined)) return;
    this.#cancelKill();
    const exitCode = this.#hasFailed || this.#rejection !== undefined ? 1 : 0;
    this.#resolveEnded({ exitCode, rejection: this.#rejection });
  }
}

/** Replaces the settings' ports, which may be 0, by those on which the gateway listens. */
function withPorts(settings: Settings, { port, adminPort }: GatewayReady): Settings {
  return { ...settings, listen: { ...settings.listen, port }, admin: { ...settings.admin, port: adminPort } };
}
