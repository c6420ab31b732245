/**
 * A node's end of one partition at the server: enters it, exchanges with it, and reports anew what the node holds and its host
 * has spent where the server may have lost it. Main thread.
 */
import { randomBytes } from 'node:crypto';
import { AuthorityLost, type HostSpent, type LeaseAnswer, type LeaseAsk } from './authority.js';
import { asLoss } from './authority-loss.js';
import type { HeldLease, HeldLeases } from './held-leases.js';
import type { ValkeyClient, ValkeyScript } from './valkey-client.js';
import {
  decodeAnswer,
  decodeView,
  encodeAsk,
  moneyPair,
  packed,
  unpacked,
  versioned,
  type Credited,
  type RawAnswer,
  type RawView,
} from './valkey-codec.js';
import { EXCHANGE_SCRIPT } from './valkey-exchange-script.js';
import { authorityKeys, type AuthorityKeys } from './valkey-keys.js';
import {
  DISTRUST_SCRIPT,
  ENTER_SCRIPT,
  LEAVE_SCRIPT,
  LOOK_SCRIPT,
  PAGE_SUBJECTS,
  REPORTED_SCRIPT,
  REPORT_SCRIPT,
  VOID_SCRIPT,
} from './valkey-node-scripts.js';

/** Entering is paged, and pages end: so many of 500 are more subjects than a process can have. */
const PAGES_MAX = 50_000;

/** What the host's store knows. Main thread; synchronous reads. */
export interface HostBooks {
  /** Undefined where it has charged nothing. */
  spentOf(subject: string): HostSpent | undefined;
  /** As its copy of the registry has it; undefined where it does not know the account. */
  creditedOf(subject: string): Credited | undefined;
  /** All accounts that it has charged. */
  allSpent(): Iterable<readonly [string, HostSpent]>;
}

/** What a node remembers of a partition, over its own end and the server's. */
export interface Remembered {
  /** Empty where this host has never been in contact. */
  readonly epoch: string;
  readonly places: readonly string[];
}

export interface PartitionOptions {
  readonly client: ValkeyClient;
  readonly namespace: string;
  readonly partition: number;
  readonly host: string;
  readonly place: string;
  readonly incarnation: string;
  readonly books: HostBooks;
  /** The accounts of this partition alone. */
  readonly isMine: (subject: string) => boolean;
  readonly held: HeldLeases;
  readonly remembered: Remembered;
  readonly remember: (remembered: Remembered) => void;
  /** Over how many nodes a limit is shared equally while the server cannot be reached; 0 where it is not. */
  readonly equalShares: number;
  readonly nodeExpiryMs: number;
  /** Counts in place of the server's time; other than 0 in tests alone. */
  readonly timeInsteadMs: () => number;
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
  readonly #keys: AuthorityKeys;
  #remembered: Remembered;
  /** Version of the list of nodes that is remembered. */
  #places: number | undefined;

  constructor(options: PartitionOptions) {
    this.#options = options;
    this.#keys = authorityKeys(options.namespace, options.partition);
    this.#remembered = options.remembered;
  }

  /** Resolves with the server's time. Rejects with AuthorityLost. */
  async enter(): Promise<number> {
    const { incarnation, timeInsteadMs, equalShares } = this.#options;
    const candidate = randomBytes(16).toString('hex');
    const { epoch: known, places } = this.#remembered;
    const words = [incarnation, timeInsteadMs(), known, candidate, equalShares, places];
    const [status, nowMs, epoch, hostReported, first] = (await this.#run(ENTER_SCRIPT, words)) as Entered;
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

  /** One round trip. `sentAtMs` by the server's clock, 0 where that is not known. Rejects with AuthorityLost. */
  async exchange(sequence: number, sentAtMs: number, asks: readonly LeaseAsk[]): Promise<PartitionAnswer> {
    const { incarnation, timeInsteadMs, equalShares, nodeExpiryMs, books } = this.#options;
    const raws = asks.map((ask) => {
      const { subject, money } = ask;
      if (money === undefined) return encodeAsk(ask, undefined, undefined);
      return encodeAsk(ask, money.spent ?? books.spentOf(subject), books.creditedOf(subject));
    });
    const words = [incarnation, sequence, sentAtMs, timeInsteadMs(), equalShares, nodeExpiryMs];
    const subjects = asks.map(({ subject }) => subject);
    const reply = (await this.#run(EXCHANGE_SCRIPT, words, subjects, raws)) as Exchanged;
    const [status, nowMs, epoch, waitMs, rest = [], places] = reply;
    if (status === 'aged') await this.#run(DISTRUST_SCRIPT, [timeInsteadMs()]);
    if (status === 'report') await this.enter();
    if (status !== 'ok') throw lossOf(status, waitMs, rest as readonly string[]);
    const answers = rest as readonly RawAnswer[];
    if (places !== this.#places) await this.#finish(epoch);
    return { nowMs, answers: asks.map((_, at) => decodeAnswer(answers[at]!)) };
  }

  async look(subjects: readonly string[]): Promise<Map<string, ReturnType<typeof decodeView>>> {
    if (subjects.length === 0) return new Map();
    const keys = subjects.flatMap((subject) => this.#keys.of(subject));
    const views = (await this.#call(LOOK_SCRIPT, keys, [this.#options.timeInsteadMs()])) as RawView[];
    return new Map(subjects.map((subject, at) => [subject, decodeView(subject, views[at]!)]));
  }

  /** Rejects with AuthorityLost, also where this life is not known. */
  async leave(): Promise<void> {
    await this.#void([]);
    if ((await this.#run(LEAVE_SCRIPT, [this.#options.incarnation])) === false) throw lossOf('unknown', 0);
  }

  /** Frees what earlier lives of the place held, page by page: what the host has spent is told with it. */
  async #void(first: readonly string[]): Promise<void> {
    const { incarnation, timeInsteadMs, books } = this.#options;
    let page = first;
    for (let pages = 0; pages < PAGES_MAX; pages++) {
      const raws = page.map((subject) => [subject, versioned(books.spentOf(subject))]);
      const next = await this.#run(VOID_SCRIPT, [incarnation, timeInsteadMs()], page, raws);
      if (!Array.isArray(next)) {
        if (next === false) throw lossOf('unknown', 0);
        return;
      }
      if (next.length === 0) return;
      page = next as string[];
    }
    throw new AuthorityLost('failing', 'leases of an earlier life do not end');
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
    const taken = await this.#run(REPORT_SCRIPT, [incarnation, timeInsteadMs()], subjects, rows);
    if (taken === false) throw lossOf('unknown', 0);
  }

  /** All is said in this epoch; who else is there is remembered. */
  async #finish(epoch: string): Promise<void> {
    const reply = await this.#run(REPORTED_SCRIPT, [this.#options.incarnation, epoch]);
    if (!Array.isArray(reply)) throw lossOf('unknown', 0);
    const [version, places] = reply as [number, string[]];
    this.#remembered = { epoch, places };
    this.#options.remember(this.#remembered);
    this.#places = version;
  }

  #run(
    script: ValkeyScript,
    words: readonly unknown[],
    subjects: readonly string[] = [],
    rows: readonly unknown[] = [],
  ): Promise<unknown> {
    const { place } = this.#options;
    const { meta, nodes, awaited, heldBy, of } = this.#keys;
    const common = [meta, nodes, awaited, heldBy(place)];
    return this.#call(script, [...common, ...subjects.flatMap((subject) => of(subject))], words, rows);
  }

  async #call(
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
