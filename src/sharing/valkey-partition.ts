/**
 * A node's end of one partition at the server: enters it, exchanges with it, and reports what the node holds
 * and its host has spent if the server may have lost that. `ValkeyCoordinator` has one for each partition.
 * Main thread.
 */
import { randomBytes } from 'node:crypto';
import type { InheritedUse } from '../registry/key-record.js';
import { CoordinatorLost, type HostSpent, type LeaseReply, type LeaseAsk } from './coordinator.js';
import type { HeldLease, HeldLeases } from './held-leases.js';
import { asLoss, type ValkeyClient, type ValkeyScript } from './valkey-client.js';
import {
  coordinatorKeys,
  type CoordinatorKeys,
  type Credited,
  decodeReply,
  decodeView,
  encodeAsk,
  moneyPair,
  packed,
  type RawReply,
  type RawView,
  unpacked,
  versioned,
} from './valkey-codec.js';
import {
  DISTRUST_SCRIPT,
  ENTER_SCRIPT,
  EXCHANGE_SCRIPT,
  LEAVE_SCRIPT,
  LOOK_SCRIPT,
  PAGE_SCOPES,
  REPORT_SCRIPT,
  REPORTED_SCRIPT,
  VOID_SCRIPT,
} from './valkey-scripts.js';

/** So many pages of 500 are more scopes than a process can have. */
const PAGES_MAX = 50_000;

export interface ValkeyServerOptions {
  readonly client: ValkeyClient;
  readonly namespace: string;
  readonly partition: number;
  readonly host: string;
  readonly place: string;
  /** The time to use instead of the server's, unless it is 0. Only tests set it. */
  readonly timeInsteadMs: () => number;
}

/**
 * Runs scripts in the name of a place (host:slot) in one partition, and frees what ended lives of that place
 * hold. The host directory uses it too.
 */
export class ValkeyServer {
  readonly keys: CoordinatorKeys;
  readonly #options: ValkeyServerOptions;

  constructor(options: ValkeyServerOptions) {
    this.#options = options;
    this.keys = coordinatorKeys(options.namespace, options.partition);
  }

  /**
   * Runs a script with the keys of the partition and the place, then the two of each scope. One round trip.
   * Rejects with CoordinatorLost.
   */
  run(
    script: ValkeyScript,
    args: readonly unknown[],
    scopes: readonly string[] = [],
    rows: readonly unknown[] = [],
  ): Promise<unknown> {
    const { meta, nodes, awaited, heldBy, of } = this.keys;
    const common = [meta, nodes, awaited, heldBy(this.#options.place)];
    return this.call(script, [...common, ...scopes.flatMap((scope) => of(scope))], args, rows);
  }

  async call(
    script: ValkeyScript,
    keys: readonly string[],
    args: readonly unknown[],
    rows: readonly unknown[] = [],
  ): Promise<unknown> {
    const { client, place, host } = this.#options;
    try {
      const reply = await client.run(script, keys, [place, host, packed(args), packed(rows)], {
        binary: true,
      });
      return unpacked(reply as Buffer);
    } catch (error) {
      throw asLoss(error);
    }
  }

  /**
   * Frees what the place holds, page by page from `first` on, and reports what the host has spent as far as
   * that is known. Returns false if another life than `incarnation` has come. Rejects with CoordinatorLost.
   */
  async free(
    incarnation: string,
    first: readonly string[],
    spentOf: (scope: string) => HostSpent | undefined,
  ): Promise<boolean> {
    let page = first;
    for (let pages = 0; pages < PAGES_MAX; pages++) {
      const rows = page.map((scope) => [scope, versioned(spentOf(scope))]);
      const next = await this.run(VOID_SCRIPT, [incarnation, this.#options.timeInsteadMs()], page, rows);
      if (next === false) return false;
      if (!Array.isArray(next) || next.length === 0) return true;
      page = next as string[];
    }
    throw new CoordinatorLost('failing', 'leases of an ended life do not end');
  }
}

/** What the host's store knows; the reads are synchronous. */
export interface HostAccounting {
  /** Undefined if the host has charged nothing. */
  spentOf(scope: string): HostSpent | undefined;
  /** By the host's copy of the registry; undefined if that has no such account. */
  creditedOf(scope: string): Credited | undefined;
  /** What a rotated key inherited from the one before; undefined for all other scopes. */
  inheritedOf?(scope: string): InheritedUse | undefined;
  /** All accounts that the host has charged. */
  allSpent(): Iterable<readonly [string, HostSpent]>;
}

/** What a host remembers of a partition over restarts of itself and of the server. */
export interface Remembered {
  /** Empty if this host has never been in contact. */
  readonly epoch: string;
  readonly places: readonly string[];
}

export interface PartitionOptions extends ValkeyServerOptions {
  readonly incarnation: string;
  readonly accounting: HostAccounting;
  /** Whether the scope belongs to this partition. */
  readonly isMine: (scope: string) => boolean;
  readonly held: HeldLeases;
  readonly remembered: Remembered;
  readonly remember: (remembered: Remembered) => void;
  /** Among how many nodes limits are divided while the server is away; 0 if they are not. */
  readonly equalShares: number;
  /** Whether this node is one of them. */
  readonly hasShare: boolean;
  readonly nodeExpiryMs: number;
}

export interface PartitionReply {
  /** The server's time. */
  readonly nowMs: number;
  readonly answers: readonly LeaseReply[];
}

type Entered = readonly [string, number, string, boolean, readonly string[]];
type Exchanged = readonly [
  status: string,
  nowMs: number,
  epoch: string,
  waitMs: number,
  /** Replies; in a quarantine some of the places that have to report. */
  rest?: readonly unknown[],
  places?: number,
];

export class ValkeyPartition {
  readonly #options: PartitionOptions;
  readonly #server: ValkeyServer;
  #remembered: Remembered;
  /** The version of the list of nodes that is remembered. */
  #places: number | undefined;

  constructor(options: PartitionOptions) {
    this.#options = options;
    this.#server = new ValkeyServer(options);
    this.#remembered = options.remembered;
  }

  /** Resolves with the server's time. Rejects with CoordinatorLost. */
  async enter(): Promise<number> {
    const { incarnation, timeInsteadMs, equalShares, hasShare } = this.#options;
    const candidate = randomBytes(16).toString('hex');
    const { epoch: known, places } = this.#remembered;
    const args = [incarnation, timeInsteadMs(), known, candidate, hasShare ? equalShares : 0, places];
    const [status, nowMs, epoch, hostReported, first] = (await this.#server.run(
      ENTER_SCRIPT,
      args,
    )) as Entered;
    if (status === 'evicts')
      throw new CoordinatorLost(
        'failing',
        `the server evicts keys (maxmemory-policy ${epoch}), want noeviction: ` +
          'what is evicted would be given twice',
      );
    // It is empty for a life that the server knows, which keeps what it holds.
    if (Array.isArray(first) && first.length > 0) await this.#void(first);
    if (epoch !== known) await this.#reportHeld();
    if (!hostReported) await this.#reportSpent();
    await this.#finish(epoch);
    return nowMs;
  }

  /**
   * One round trip. `sentAtMs` is by the server's clock, 0 if that is not known. If the server finds that
   * this was too long ago, `wasSetForward` gets the server's time and says whether a step of its clock is the
   * reason. Rejects with CoordinatorLost.
   */
  async exchange(
    sequence: number,
    sentAtMs: number,
    asks: readonly LeaseAsk[],
    wasSetForward: (serverMs: number) => boolean,
  ): Promise<PartitionReply> {
    const { incarnation, timeInsteadMs, equalShares, nodeExpiryMs, accounting } = this.#options;
    const raws = asks.map((ask) => {
      const { scope, money } = ask;
      if (money === undefined) return encodeAsk(ask, undefined, undefined, accounting.inheritedOf?.(scope));
      // Read after `outstanding`, see MoneyAsk.
      const spent = money.spent ?? accounting.spentOf(scope);
      return encodeAsk(ask, spent, accounting.creditedOf(scope), undefined);
    });
    const args = [incarnation, sequence, sentAtMs, timeInsteadMs(), equalShares, nodeExpiryMs];
    const scopes = asks.map(({ scope }) => scope);
    const reply = (await this.#server.run(EXCHANGE_SCRIPT, args, scopes, raws)) as Exchanged;
    const [status, nowMs, epoch, waitMs, rest = [], places] = reply;
    if (status === 'aged' && !wasSetForward(nowMs))
      throw new CoordinatorLost('deadline', 'an exchange came to the server too late to be carried out');
    if (status === 'aged') await this.#server.run(DISTRUST_SCRIPT, [timeInsteadMs()]);
    if (status === 'report') await this.enter();
    if (status !== 'ok') throw lossOf(status, waitMs, rest as readonly string[]);
    const replies = rest as readonly RawReply[];
    if (places !== this.#places) await this.#finish(epoch);
    return { nowMs, answers: asks.map((_, at) => decodeReply(replies[at]!)) };
  }

  async look(scopes: readonly string[]): Promise<Map<string, ReturnType<typeof decodeView>>> {
    if (scopes.length === 0) return new Map();
    const keys = scopes.flatMap((scope) => this.#server.keys.of(scope));
    const views = (await this.#server.call(LOOK_SCRIPT, keys, [this.#options.timeInsteadMs()])) as RawView[];
    const { accounting } = this.#options;
    return new Map(
      scopes.map((scope, at) => {
        const view = decodeView(scope, views[at]!, accounting.spentOf(scope)?.totalPicoUnits);
        return [scope, view];
      }),
    );
  }

  /** Rejects with CoordinatorLost, also if this life is not known. */
  async leave(): Promise<void> {
    await this.#void([]);
    if ((await this.#server.run(LEAVE_SCRIPT, [this.#options.incarnation])) === false)
      throw lossOf('unknown', 0);
  }

  /** Frees what earlier lives of the place hold. */
  async #void(first: readonly string[]): Promise<void> {
    const { incarnation, accounting } = this.#options;
    const isFree = await this.#server.free(incarnation, first, (scope) => accounting.spentOf(scope));
    if (!isFree) throw lossOf('unknown', 0);
  }

  async #reportHeld(): Promise<void> {
    const { held, accounting } = this.#options;
    await this.#report(held.entries(), (scope, lease) =>
      heldRow(scope, lease, versioned(accounting.spentOf(scope))),
    );
  }

  async #reportSpent(): Promise<void> {
    const spent = this.#options.accounting.allSpent();
    await this.#report(spent, (scope, total) => [scope, false, 0, false, versioned(total)]);
  }

  /** Reports the entries of this partition, page by page. */
  async #report<Value>(
    entries: Iterable<readonly [string, Value]>,
    rowOf: (scope: string, value: Value) => unknown[],
  ): Promise<void> {
    const rows: unknown[][] = [];
    for (const [scope, value] of entries) {
      if (!this.#options.isMine(scope)) continue;
      rows.push(rowOf(scope, value));
      if (rows.length === PAGE_SCOPES) await this.#reportPage(rows.splice(0));
    }
    if (rows.length > 0) await this.#reportPage(rows);
  }

  async #reportPage(rows: readonly unknown[][]): Promise<void> {
    const { incarnation, timeInsteadMs } = this.#options;
    const scopes = rows.map(([scope]) => scope as string);
    const taken = await this.#server.run(REPORT_SCRIPT, [incarnation, timeInsteadMs()], scopes, rows);
    if (taken === false) throw lossOf('unknown', 0);
  }

  /** Says that all is reported in this epoch, and remembers which other nodes there are. */
  async #finish(epoch: string): Promise<void> {
    const reply = await this.#server.run(REPORTED_SCRIPT, [this.#options.incarnation, epoch]);
    if (!Array.isArray(reply)) throw lossOf('unknown', 0);
    const [version, places] = reply as [number, string[]];
    this.#remembered = { epoch, places };
    this.#options.remember(this.#remembered);
    this.#places = version;
  }
}

function heldRow(scope: string, { day, slots, money }: HeldLease, spent: unknown): unknown[] {
  return [
    scope,
    day !== undefined && [day.dayNumber, day.used, day.unused, day.seen],
    slots,
    money > 0n && moneyPair(money),
    spent,
  ];
}

function lossOf(status: string, waitMs: number, awaited: readonly string[] = []): CoordinatorLost {
  switch (status) {
    case 'unknown':
      return new CoordinatorLost('unknown_node', 'this life of the node is not known to the server');
    case 'report':
    case 'quarantine':
      return new CoordinatorLost(
        'quarantine',
        `the server may have lost data; nothing is lent for ${Math.ceil(waitMs / 1_000)} s, and until all hosts have reported` +
          (awaited.length === 0 ? '' : `: ${awaited.join(', ')} and maybe others have not`),
      );
    case 'aged':
      return new CoordinatorLost('quarantine', "the server's clock was set forward");
    default:
      return new CoordinatorLost('failing', `the server refused an exchange: ${status}`);
  }
}
