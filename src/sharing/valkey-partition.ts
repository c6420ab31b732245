/**
 * A node's end of one partition at the server: enters it, exchanges with it, and reports anew what the node holds and its host
 * has spent where the server may have lost it. Main thread.
 */
import { randomBytes } from 'node:crypto';
import type { InheritedUse } from '../registry/key-record.js';
import { asLoss } from './coordinator-contact.js';
import { CoordinatorLost, type HostSpent, type LeaseReply, type LeaseAsk } from './coordinator.js';
import type { HeldLease, HeldLeases } from './held-leases.js';
import type { ValkeyClient, ValkeyScript } from './valkey-client.js';
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

/*
 * A place of a host, as the server knows it in one partition: runs scripts in its name, and frees what lives of it that have ended
 * still hold. Main thread.
 */

/** Pages end: so many of 500 are more scopes than a process can have. */
const PAGES_MAX = 50_000;

export interface ValkeyServerOptions {
  readonly client: ValkeyClient;
  readonly namespace: string;
  readonly partition: number;
  readonly host: string;
  readonly place: string;
  /** Counts in place of the server's time; other than 0 in tests alone. */
  readonly timeInsteadMs: () => number;
}

export class ValkeyServer {
  readonly keys: CoordinatorKeys;
  readonly #options: ValkeyServerOptions;

  constructor(options: ValkeyServerOptions) {
    this.#options = options;
    this.keys = coordinatorKeys(options.namespace, options.partition);
  }

  /** With the keys of the partition and of the place, then the two of each scope. One round trip. Rejects with AuthorityLost. */
  run(
    script: ValkeyScript,
    words: readonly unknown[],
    scopes: readonly string[] = [],
    rows: readonly unknown[] = [],
  ): Promise<unknown> {
    const { meta, nodes, awaited, heldBy, of } = this.keys;
    const common = [meta, nodes, awaited, heldBy(this.#options.place)];
    return this.call(script, [...common, ...scopes.flatMap((scope) => of(scope))], words, rows);
  }

  async call(
    script: ValkeyScript,
    keys: readonly string[],
    words: readonly unknown[],
    rows: readonly unknown[] = [],
  ): Promise<unknown> {
    const { client, place, host } = this.#options;
    try {
      const reply = await client.run(script, keys, [place, host, packed(words), packed(rows)], {
        binary: true,
      });
      return unpacked(reply as Buffer);
    } catch (error) {
      throw asLoss(error);
    }
  }

  /**
   * Page by page, `first` being one: what the host has spent is told with it, as far as that is known. False where another life
   * than `incarnation` has come. Rejects with AuthorityLost.
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

/** What the host's store knows. Main thread; synchronous reads. */
export interface HostAccounting {
  /** Undefined where it has charged nothing. */
  spentOf(scope: string): HostSpent | undefined;
  /** As its copy of the registry has it; undefined where it does not know the account. */
  creditedOf(scope: string): Credited | undefined;
  /** What a key began with that rotation has made; undefined for all others. */
  inheritedOf?(scope: string): InheritedUse | undefined;
  /** All accounts that it has charged. */
  allSpent(): Iterable<readonly [string, HostSpent]>;
}

/** What a node remembers of a partition, over its own end and the server's. */
export interface Remembered {
  /** Empty where this host has never been in contact. */
  readonly epoch: string;
  readonly places: readonly string[];
}

export interface PartitionOptions extends ValkeyServerOptions {
  readonly incarnation: string;
  readonly books: HostAccounting;
  /** The accounts of this partition alone. */
  readonly isMine: (scope: string) => boolean;
  readonly held: HeldLeases;
  readonly remembered: Remembered;
  readonly remember: (remembered: Remembered) => void;
  /** Over how many nodes a limit is shared equally while the server cannot be reached; 0 where it is not. */
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
  /** Answers; in a quarantine some of the places that are awaited. */
  rest?: readonly unknown[],
  places?: number,
];

export class ValkeyPartition {
  readonly #options: PartitionOptions;
  readonly #place: ValkeyServer;
  #remembered: Remembered;
  /** Version of the list of nodes that is remembered. */
  #places: number | undefined;

  constructor(options: PartitionOptions) {
    this.#options = options;
    this.#place = new ValkeyServer(options);
    this.#remembered = options.remembered;
  }

  /** Resolves with the server's time. Rejects with AuthorityLost. */
  async enter(): Promise<number> {
    const { incarnation, timeInsteadMs, equalShares, hasShare } = this.#options;
    const candidate = randomBytes(16).toString('hex');
    const { epoch: known, places } = this.#remembered;
    const words = [incarnation, timeInsteadMs(), known, candidate, hasShare ? equalShares : 0, places];
    const [status, nowMs, epoch, hostReported, first] = (await this.#place.run(
      ENTER_SCRIPT,
      words,
    )) as Entered;
    if (status === 'evicts')
      throw new CoordinatorLost(
        'failing',
        `the server evicts keys (maxmemory-policy ${epoch}), want noeviction: what is evicted would be given twice`,
      );
    // Empty for a life that is known: what it holds itself stays.
    if (Array.isArray(first) && first.length > 0) await this.#void(first);
    if (epoch !== known) await this.#reportHeld();
    if (!hostReported) await this.#reportSpent();
    await this.#finish(epoch);
    return nowMs;
  }

  /**
   * One round trip. `sentAtMs` by the server's clock, 0 where that is not known; where the server finds it too long ago,
   * `wasSetForward` is told the server's time and tells whether its clock is why. Rejects with AuthorityLost.
   */
  async exchange(
    sequence: number,
    sentAtMs: number,
    asks: readonly LeaseAsk[],
    wasSetForward: (serverMs: number) => boolean,
  ): Promise<PartitionReply> {
    const { incarnation, timeInsteadMs, equalShares, nodeExpiryMs, books: accounting } = this.#options;
    const raws = asks.map((ask) => {
      const { scope: subject, money } = ask;
      if (money === undefined) return encodeAsk(ask, undefined, undefined, accounting.inheritedOf?.(subject));
      return encodeAsk(
        ask,
        money.spent ?? accounting.spentOf(subject),
        accounting.creditedOf(subject),
        undefined,
      );
    });
    const words = [incarnation, sequence, sentAtMs, timeInsteadMs(), equalShares, nodeExpiryMs];
    const scopes = asks.map(({ scope: subject }) => subject);
    const reply = (await this.#place.run(EXCHANGE_SCRIPT, words, scopes, raws)) as Exchanged;
    const [status, nowMs, epoch, waitMs, rest = [], places] = reply;
    if (status === 'aged' && !wasSetForward(nowMs))
      throw new CoordinatorLost('deadline', 'an exchange came to the server too late to be carried out');
    if (status === 'aged') await this.#place.run(DISTRUST_SCRIPT, [timeInsteadMs()]);
    if (status === 'report') await this.enter();
    if (status !== 'ok') throw lossOf(status, waitMs, rest as readonly string[]);
    const replies = rest as readonly RawReply[];
    if (places !== this.#places) await this.#finish(epoch);
    return { nowMs, answers: asks.map((_, at) => decodeReply(replies[at]!)) };
  }

  async look(scopes: readonly string[]): Promise<Map<string, ReturnType<typeof decodeView>>> {
    if (scopes.length === 0) return new Map();
    const keys = scopes.flatMap((scope) => this.#place.keys.of(scope));
    const views = (await this.#place.call(LOOK_SCRIPT, keys, [this.#options.timeInsteadMs()])) as RawView[];
    const { books: accounting } = this.#options;
    return new Map(
      scopes.map((scope, at) => {
        const view = decodeView(scope, views[at]!, accounting.spentOf(scope)?.totalPicoUnits);
        return [scope, view];
      }),
    );
  }

  /** Rejects with AuthorityLost, also where this life is not known. */
  async leave(): Promise<void> {
    await this.#void([]);
    if ((await this.#place.run(LEAVE_SCRIPT, [this.#options.incarnation])) === false)
      throw lossOf('unknown', 0);
  }

  /** Frees what earlier lives of the place held. */
  async #void(first: readonly string[]): Promise<void> {
    const { incarnation, books: accounting } = this.#options;
    const isFree = await this.#place.free(incarnation, first, (scope) => accounting.spentOf(scope));
    if (!isFree) throw lossOf('unknown', 0);
  }

  async #reportHeld(): Promise<void> {
    const rows: unknown[][] = [];
    for (const [scope, held] of this.#options.held.entries()) {
      if (!this.#options.isMine(scope)) continue;
      rows.push(heldRow(scope, held, versioned(this.#options.books.spentOf(scope))));
      if (rows.length === PAGE_SCOPES) await this.#report(rows.splice(0));
    }
    if (rows.length > 0) await this.#report(rows);
  }

  async #reportSpent(): Promise<void> {
    const rows: unknown[][] = [];
    for (const [scope, spent] of this.#options.books.allSpent()) {
      if (!this.#options.isMine(scope)) continue;
      rows.push([scope, false, 0, false, versioned(spent)]);
      if (rows.length === PAGE_SCOPES) await this.#report(rows.splice(0));
    }
    if (rows.length > 0) await this.#report(rows);
  }

  async #report(rows: readonly unknown[][]): Promise<void> {
    const { incarnation, timeInsteadMs } = this.#options;
    const scopes = rows.map(([scope]) => scope as string);
    const taken = await this.#place.run(REPORT_SCRIPT, [incarnation, timeInsteadMs()], scopes, rows);
    if (taken === false) throw lossOf('unknown', 0);
  }

  /** All is said in this epoch; who else is there is remembered. */
  async #finish(epoch: string): Promise<void> {
    const reply = await this.#place.run(REPORTED_SCRIPT, [this.#options.incarnation, epoch]);
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
