/**
 * Starts the gateway processes, starts again those that end, replaces them one by one, and ends them all.
 * Supervisor process.
 *
 * The first gateway decides: one that ends before it ever served ends the group, because trying again would
 * end the same way and an operator is watching. Once it has served, its ports are kept for every later start,
 * so that port 0 means one port for as long as the supervisor lives.
 */
import { adoptLive, adoptReplaced } from '../config/settings-in-force.js';
import type { Settings } from '../config/schema.js';
import type { GatewayReady, StartGateway } from '../gateway/messages.js';
import type { GatewayExit, GatewayProcess } from './gateway-process.js';
import {
  GroupMember,
  type GroupCallbacks,
  type GroupEnd,
  type GroupOptions,
  type Replacement,
} from './group-member.js';
import { GroupSnapshots } from './group-snapshots.js';
import { Primary } from './primary.js';

export interface ReplaceSteps<Member> {
  /** Those that are there. */
  members(): readonly Member[];
  /** A further one, which is not started yet. */
  add(): Member;
  /** Resolves when it serves, or with how it ended before it did; then it is gone. */
  start(member: Member): Promise<string | undefined>;
  /** What `from` alone does for the group, `to` does from now on. */
  handOver(from: Member, to: Member): Promise<void>;
  /** Resolves when its calls have ended and it is gone. */
  retire(member: Member): Promise<void>;
  isStopping(): boolean;
}

/**
 * Replaces the gateways one by one: the next serves before the former takes no more calls, and the former has
 * ended before the one after it is started, so at most one more than usual runs. Resolves when all that were
 * there are gone, or with why the rest stay.
 */
export async function replaceOneByOne<Member>(steps: ReplaceSteps<Member>): Promise<string | undefined> {
  for (const former of [...steps.members()]) {
    if (steps.isStopping()) return 'the gateways are stopping';
    const next = steps.add();
    const failure = await steps.start(next);
    if (failure !== undefined) return `the new gateway did not serve: ${failure}`;
    await steps.handOver(former, next);
    await steps.retire(former);
  }
  return undefined;
}

export class ProcessGroup {
  readonly #options: GroupOptions;
  readonly #callbacks: GroupCallbacks;
  readonly #members: GroupMember[];
  readonly #primary = new Primary<GroupMember>();
  readonly #snapshots = new GroupSnapshots();
  readonly #ended: Promise<GroupEnd>;
  #resolveEnded!: (end: GroupEnd) => void;
  #settings: Settings;
  #inForce: StartGateway['inForce'];
  #served = false;
  /** While gateways are being replaced: what the next one gets. */
  #replacing: Settings | undefined;
  #stopping = false;
  #failed = false;
  #refusal: string | undefined;
  #killTimer: NodeJS.Timeout | undefined;

  /** Starts at once. */
  constructor(options: GroupOptions, callbacks: GroupCallbacks) {
    this.#options = options;
    this.#callbacks = callbacks;
    this.#settings = options.settings;
    this.#inForce = options.inForce;
    this.#ended = new Promise((resolve) => (this.#resolveEnded = resolve));
    this.#members = Array.from({ length: options.settings.processes }, (_, slot) =>
      this.#memberOf(slot, false),
    );
    void this.#members[0]!.start();
  }

  /** Resolves when no gateway is left and none will be started. */
  get ended(): Promise<GroupEnd> {
    return this.#ended;
  }

  /** What a gateway that is started now gets. */
  get settings(): Settings {
    return this.#settings;
  }

  /**
   * Gives what is live of `next` to every gateway, and to those that are started later. Resolves with the
   * reasons why not: then the settings are as before. With `dryRun` only asks. One at a time: see Reloads.
   */
  async reload(next: Settings, dryRun: boolean): Promise<readonly string[]> {
    if (!this.#served) return ['the gateway is still starting; reload again when it serves'];
    if (this.#stopping) return ['the gateway is stopping'];
    const errors = await this.#tellAll(next, true);
    if (errors.length > 0 || dryRun) return errors;
    if (this.#isStopping()) return ['the gateway is stopping'];
    // All can take them. From here on a gateway that dies comes back with them, also in the middle of the
    // change.
    const before = this.#settings;
    this.#adopt(next);
    const failures = await this.#tellAll(next, false);
    if (failures.length > 0) this.#adopt(before);
    return failures;
  }

  /** What operators of every gateway, also of those started later, are shown as the settings. */
  showInForce(inForce: StartGateway['inForce']): void {
    this.#inForce = inForce;
    for (const member of this.#members) member.process?.showInForce(inForce);
  }

  /** Why the gateways cannot be replaced now; undefined if they can. */
  get replaceRefusal(): string | undefined {
    if (!this.#served) return 'the gateway is still starting';
    if (this.#stopping) return 'the gateway is stopping';
    if (this.#replacing !== undefined)
      return 'the gateways are being replaced already; ask again when that has ended';
    if (!this.#isShared)
      return 'a single gateway process cannot be replaced while it serves, for limits and money are its own: set processes to 2 or more, share them with `sharing`, or stop and start';
    return undefined;
  }

  /**
   * Begins to replace every gateway, one by one, by one that runs with `next` and with the program that is on
   * disk.
   */
  replace(next: Settings): Replacement {
    this.#replacing = adoptReplaced(this.#settings, next);
    const count = this.#members.length;
    const done = replaceOneByOne<GroupMember>({
      members: () => this.#members,
      add: () => {
        const member = this.#memberOf(this.#freeSlot(), true, this.#replacing);
        this.#members.push(member);
        return member;
      },
      start: (member) => member.start(),
      handOver: async (from, to) => {
        if (this.#primary.current === from) await this.#primary.handOver(to);
      },
      retire: async (member) => {
        // Twice: a call that comes on a kept connection while it drains has that time too.
        await member.retire(this.#endMsMax() + this.#settings.drain_timeout_ms);
        this.#forget(member);
      },
      isStopping: () => this.#isStopping(),
    }).finally(() => (this.#replacing = undefined));
    return { count, done };
  }

  /**
   * Asks every gateway to finish its calls and end; kills those that have not after the time they have.
   * Idempotent.
   */
  drain(): void {
    if (this.#stopping) return;
    this.#stopping = true;
    const waitMs = this.#endMsMax();
    this.#killTimer = setTimeout(() => {
      this.#options.log.error('a gateway did not end in time and is killed', { waited_ms: waitMs });
      this.kill();
    }, waitMs);
    for (const member of this.#members) member.drain();
    this.#endIfEmpty();
  }

  /**
   * Ends every gateway at once: calls in flight are cut, and charges of the last flush interval may be lost.
   */
  kill(): void {
    this.drain();
    for (const member of this.#members) member.kill();
  }

  /** What a gateway may take to end. */
  #endMsMax(): number {
    return this.#settings.drain_timeout_ms + this.#options.exitGraceMs;
  }

  #memberOf(slot: number, isTrial: boolean, settings = this.#settings): GroupMember {
    return new GroupMember(
      this.#options,
      {
        startOf: (member) => this.#startOf(member),
        onReady: (member, ready) => this.#onMemberReady(member, ready),
        onExit: (member, process, exit) => this.#onMemberExit(member, process, exit),
        onLeads: (member) => this.#primary.onLeads(member),
        onLastReading: (member, snapshot) => this.#snapshots.note(member.process!, snapshot),
        onReloadAsked: (request) => this.#callbacks.onReloadAsked(request),
        onReadingsAsked: (what, accounts) => this.#snapshots.collect(what, accounts),
        onLogChanged: (change) => {
          for (const member of this.#members) member.process?.changeLog(change);
        },
        onUpstreamsReset: (model) => {
          for (const member of this.#members) member.process?.resetUpstreams(model);
        },
      },
      { slot, settings, isTrial },
    );
  }

  /** Whether a second gateway may work on the data folder beside the first. */
  get #isShared(): boolean {
    return this.#settings.processes > 1 || this.#settings.sharing !== undefined;
  }

  #startOf(member: GroupMember): StartGateway {
    const { demo, groupId } = this.#options;
    const inForce = this.#inForce;
    const leads = this.#primary.current === undefined;
    if (leads) this.#primary.begin(member);
    return {
      kind: 'start',
      settings: member.settings,
      demo,
      inForce,
      ...(this.#isShared ? { group: { id: groupId, slot: member.slot } } : {}),
      leads,
      joins: this.#isShared && this.#served,
    };
  }

  /**
   * No two processes have the same; the lowest, so that there are never more than one beyond their number.
   */
  #freeSlot(): number {
    const taken = new Set(this.#members.map(({ slot }) => slot));
    let slot = 0;
    while (taken.has(slot)) slot += 1;
    return slot;
  }

  #adopt(next: Settings): void {
    this.#settings = adoptLive(this.#settings, next);
    this.#replacing &&= adoptLive(this.#replacing, next);
    for (const member of this.#members) member.settings = adoptLive(member.settings, next);
  }

  /** What speaks against the settings, of all gateways that will go on. */
  async #tellAll(next: Settings, check: boolean): Promise<readonly string[]> {
    const replies = this.#members
      .filter(({ isRetiring }) => !isRetiring)
      .map((member) => member.reload(adoptLive(member.settings, next), check));
    return [...new Set((await Promise.all(replies)).flat())];
  }

  #onMemberReady(member: GroupMember, ready: GatewayReady): void {
    this.#snapshots.add(member.process!, member.slot);
    this.#primary.onFit(member);
    if (this.#served) {
      this.#options.log.info('gateway serves again', { port: ready.port });
      return;
    }
    this.#served = true;
    this.#settings = withPorts(this.#settings, ready);
    for (const other of this.#members) other.settings = withPorts(other.settings, ready);
    this.#callbacks.onReady(ready);
    if (!this.#stopping) this.#members.slice(1).forEach((other) => void other.start());
  }

  #onMemberExit(member: GroupMember, process: GatewayProcess, exit: GatewayExit): void {
    this.#snapshots.remove(process);
    this.#primary.onEnd(member, this.#members);
    if (this.#stopping) this.#failed ||= !exit.clean;
    else if (member.isTrial) this.#forget(member);
    else if (member.isRetiring) this.#onRetired(exit);
    else this.#onUnaskedExit(member, exit);
    this.#endIfEmpty();
  }

  #onRetired({ clean, how }: GatewayExit): void {
    if (!clean) this.#options.log.error('a gateway that was replaced did not end well', { how });
  }

  #onUnaskedExit(member: GroupMember, { how, refusal }: GatewayExit): void {
    if (!this.#served) {
      this.#refuse(refusal ?? `the gateway ended before it was ready (${how})`);
      return;
    }
    if (refusal !== undefined && !this.#members.some(({ isFit }) => isFit)) {
      this.#refuse(refusal);
      return;
    }
    this.#options.log.warn('gateway ended unasked and is started again', {
      how: refusal === undefined ? how : `${how}: ${refusal}`,
      pause_ms: member.startLater(),
    });
  }

  #forget(member: GroupMember): void {
    this.#members.splice(this.#members.indexOf(member), 1);
  }

  /** Settings or data that no gateway can run with. */
  #refuse(reason: string): void {
    this.#failed = true;
    this.#refusal ??= reason;
    this.drain();
  }

  /** Read anew after a wait. */
  #isStopping(): boolean {
    return this.#stopping;
  }

  #endIfEmpty(): void {
    if (!this.#stopping || this.#members.some((member) => member.process !== undefined)) return;
    clearTimeout(this.#killTimer);
    this.#resolveEnded({ exitCode: this.#failed ? 1 : 0, refusal: this.#refusal });
  }
}

function withPorts(settings: Settings, { port, adminPort }: GatewayReady): Settings {
  return {
    ...settings,
    listen: { ...settings.listen, port },
    admin: { ...settings.admin, port: adminPort },
  };
}
