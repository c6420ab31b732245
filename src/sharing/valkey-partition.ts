/**
 * A node's end of one partition at the server: enters it, exchanges with it, and reports anew what the node holds and its host
 * has spent where the server may have lost it. Main thread.
 */
import { randomBytes } from 'node:crypto';
import type { InheritedUse } from '../registry/key-record.js';
import { asLoss } from './coordinator-contact.js';
import { AuthorityLost, type HostSpent, type LeaseAnswer, type LeaseAsk } from './coordinator.js';
import type { HeldLease, HeldLeases } from './held-leases.js';
import type { ValkeyClient, ValkeyScript } from './valkey-client.js';
import {
  authorityKeys,
  type AuthorityKeys,
  type Credited,
  decodeAnswer,
  decodeView,
  encodeAsk,
  moneyPair,
  packed,
  type RawAnswer,
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
  PAGE_SUBJECTS,
  REPORT_SCRIPT,
  REPORTED_SCRIPT,
  VOID_SCRIPT,
} from './valkey-scripts.js';

/*
 * A place of a host, as the server knows it in one partition: runs scripts in its name, and frees what lives of it that have ended
 * still hold. Main thread.
 */

/** Pages end: so many of 500 are more subjects than a process can have. */
const PAGES_MAX = 50_000;

export interface ValkeyPlaceOptions {
  readonly client: ValkeyClient;
  readonly namespace: string;
  readonly partition: number;
  readonly host: string;
  readonly place: string;
  /** Counts in place of the server's time; other than 0 in tests alone. */
  readonly timeInsteadMs: () => number;
}

export class ValkeyPlace {
  readonly keys: AuthorityKeys;
  readonly #options: ValkeyPlaceOptions;

  constructor(options: ValkeyPlaceOptions) {
    this.#options = options;
    this.keys = authorityKeys(options.namespace, options.partition);
  }

  /** With the keys of the partition and of the place, then the two of each subject. One round trip. Rejects with AuthorityLost. */
  run(
    script: ValkeyScript,
    words: readonly unknown[],
    subjects: readonly string[] = [],
    rows: readonly unknown[] = [],
  ): Promise<unknown> {
    const { meta, nodes, awaited, heldBy, of } = this.keys;
    const common = [meta, nodes, awaited, heldBy(this.#options.place)];
    return this.call(script, [...common, ...subjects.flatMap((subject) => of(subject))], words, rows);
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
    spentOf: (subject: string) => HostSpent | undefined,
  ): Promise<boolean> {
    let page = first;
    for (let pages = 0; pages < PAGES_MAX; pages++) {
      const rows = page.map((subject) => [subject, versioned(spentOf(subject))]);
      const next = await this.run(VOID_SCRIPT, [incarnation, this.#options.timeInsteadMs()], page, rows);
      if (next === false) return false;
      if (!Array.isArray(next) || next.length === 0) return true;
      page = next as string[];
    }
    throw new AuthorityLost('failing', 'leases of an ended life do not end');
  }
}

/** What the host's store knows. Main thread; synchronous reads. */
export interface HostBooks {
  /** Undefined where it has charged nothing. */
  spentOf(subject: string): HostSpent | undefined;
  /** As its copy of the registry has it; undefined where it does not know the account. */
  creditedOf(subject: string): Credited | undefined;
  /** What a key began with that rotation has made; undefined for all others. */
  inheritedOf?(subject: string): InheritedUse | undefined;
  /** All accounts that it has charged. */
  allSpent(): Iterable<readonly [string, HostSpent]>;
}

/** What a node remembers of a partition, over its own end and the server's. */
export interface Remembered {
  /** Empty where this host has never been in contact. */
  readonly epoch: string;
  readonly places: readonly string[];
}

export interface PartitionOptions extends ValkeyPlaceOptions {
  readonly incarnation: string;
  readonly books: HostBooks;
  /** The accounts of this partition alone. */
  readonly isMine: (subject: string) => boolean;
  readonly held: HeldLeases;
  readonly remembered: Remembered;
  readonly remember: (remembered: Remembered) => void;
  /** Over how many nodes a limit is shared equally while the server cannot be reached; 0 where it is not. */
  readonly equalShares: number;
  /** Whether this node is one of them. */
  readonly hasShare: boolean;
  readonly nodeExpiryMs: number;
}

export interface PartitionAnswer {
  /** The server's time. */
  readonly nowMs: number;
  readonly answers: readonly LeaseAnswer[];
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
  readonly #place: ValkeyPlace;
  #remembered: Remembered;
  /** Version of the list of nodes that is remembered. */
  #places: number | undefined;

  constructor(options: PartitionOptions) {
    this.#options = options;
    this.#place = new ValkeyPlace(options);
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
      throw new AuthorityLost(
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
  ): Promise<PartitionAnswer> {
    const { incarnation, timeInsteadMs, equalShares, nodeExpiryMs, books } = this.#options;
    const raws = asks.map((ask) => {
      const { subject, money } = ask;
      if (money === undefined) return encodeAsk(ask, undefined, undefined, books.inheritedOf?.(subject));
      return encodeAsk(ask, money.spent ?? books.spentOf(subject), books.creditedOf(subject), undefined);
    });
    const words = [incarnation, sequence, sentAtMs, timeInsteadMs(), equalShares, nodeExpiryMs];
    const subjects = asks.map(({ subject }) => subject);
    const reply = (await this.#place.run(EXCHANGE_SCRIPT, words, subjects, raws)) as Exchanged;
    const [status, nowMs, epoch, waitMs, rest = [], places] = reply;
    if (status === 'aged' && !wasSetForward(nowMs))
      throw new AuthorityLost('deadline', 'an exchange came to the server too late to be carried out');
    if (status === 'aged') await this.#place.run(DISTRUST_SCRIPT, [timeInsteadMs()]);
    if (status === 'report') await this.enter();
    if (status !== 'ok') throw lossOf(status, waitMs, rest as readonly string[]);
    const answers = rest as readonly RawAnswer[];
    if (places !== this.#places) await this.#finish(epoch);
    return { nowMs, answers: asks.map((_, at) => decodeAnswer(answers[at]!)) };
  }

  async look(subjects: readonly string[]): Promise<Map<string, ReturnType<typeof decodeView>>> {
    if (subjects.length === 0) return new Map();
    const keys = subjects.flatMap((subject) => this.#place.keys.of(subject));
    const views = (await this.#place.call(LOOK_SCRIPT, keys, [this.#options.timeInsteadMs()])) as RawView[];
    const { books } = this.#options;
    return new Map(
      subjects.map((subject, at) => {
        const view = decodeView(subject, views[at]!, books.spentOf(subject)?.totalPicoUnits);
        return [subject, view];
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
    const { incarnation, books } = this.#options;
    const isFree = await this.#place.free(incarnation, first, (subject) => books.spentOf(subject));
    if (!isFree) throw lossOf('unknown', 0);
  }

  async #reportHeld(): Promise<void> {
    const rows: unknown[][] = [];
    for (const [subject, held] of this.#options.held.entries()) {
      if (!this.#options.isMine(subject)) continue;
      rows.push(heldRow(subject, held, versioned(this.#options.books.spentOf(subject))));
      if (rows.length === PAGE_SUBJECTS) await this.#report(rows.splice(0));
    }
    if (rows.length > 0) await this.#report(rows);
  }

  async #reportSpent(): Promise<void> {
    const rows: unknown[][] = [];
    for (const [subject, spent] of this.#options.books.allSpent()) {
      if (!this.#options.isMine(subject)) continue;
      rows.push([subject, false, 0, false, versioned(spent)]);
      if (rows.length === PAGE_SUBJECTS) await this.#report(rows.splice(0));
    }
    if (rows.length > 0) await this.#report(rows);
  }

  async #report(rows: readonly unknown[][]): Promise<void> {
    const { incarnation, timeInsteadMs } = this.#options;
    const subjects = rows.map(([subject]) => subject as string);
    const taken = await this.#place.run(REPORT_SCRIPT, [incarnation, timeInsteadMs()], subjects, rows);
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

function heldRow(subject: string, { day, slots, money }: HeldLease, spent: unknown): unknown[] {
  return [
    subject,
    day !== undefined && [day.dayNumber, day.used, day.unused, day.seen],
    slots,
    money > 0n && moneyPair(money),
    spent,
  ];
}

function lossOf(status: string, waitMs: number, awaited: readonly string[] = []): AuthorityLost {
  switch (status) {
    case 'unknown':
      return new AuthorityLost('unknown_node', 'this life of the node is not known to the server');
    case 'report':
    case 'quarantine':
      return new AuthorityLost(
        'quarantine',
        `the server may have lost data; nothing is lent for ${Math.ceil(waitMs / 1_000)} s, and until all hosts have reported` +
          (awaited.length === 0 ? '' : `: ${awaited.join(', ')} and maybe others have not`),
      );
    case 'aged':
      return new AuthorityLost('quarantine', "the server's clock was set forward");
    default:
      return new AuthorityLost('failing', `the server refused an exchange: ${status}`);
  }
}
