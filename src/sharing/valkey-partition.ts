/**
 * The node's side of one partition at the server: it enters the partition, exchanges, views and leaves. If
 * the server may have lost data, it reports what the node holds and what the host has spent.
 * valkey-coordinator.ts has one for each partition. Main thread. Calls reject with CoordinatorLost, or with
 * errors that the caller turns into one (coordinator-errors.ts).
 *
 * Must hold: a promise of a term (valkey-marks.ts) is on disk before it is sent. After a loss all that is
 * held is reported before the server grants. A damaged record of the host's store costs its own scope alone.
 * Lists have the order that a script's comment gives. Tests, below test/unit/sharing: valkey-blink.test.ts
 * (terms), valkey-loss.test.ts (reports), valkey-damage.test.ts (records).
 */
import { randomBytes } from 'node:crypto';
import type { Clock } from '../core/clock.js';
import { errorText } from '../core/errors.js';
import type { InheritedUse } from '../registry/key-record.js';
import {
  CoordinatorLost,
  type HostSpent,
  type LeaseReply,
  type LeaseAsk,
  type ScopeView,
} from './coordinator.js';
import { type DamagedScopes, unknownReply } from './coordinator-errors.js';
import { HeldLeases, type HeldScope } from './held-leases.js';
import { ServerClock } from './server-clock.js';
import type { PromisedTerm, Remembered, SharingMemory } from './sharing-memory.js';
import {
  countedOf,
  type Credited,
  decodable,
  decodeReply,
  decodeView,
  encodeAsk,
  moneyPair,
  type RawReply,
  type RawView,
  type SpentRow,
  STOCK_CODES,
  versioned,
} from './valkey-codec.js';
import { DISTRUST_SCRIPT, ENTER_SCRIPT, LEAVE_SCRIPT, REPORTED_SCRIPT } from './valkey-life-scripts.js';
import { EXCHANGE_SCRIPT, VIEW_SCRIPT, PAGE_SCOPES, REPORT_SCRIPT } from './valkey-scripts.js';
import { LOSSES, lossOf, type RefusedStatus } from './valkey-refusals.js';
import { ValkeyServer, type ValkeyServerOptions } from './valkey-server.js';

/** How often a call is sent if the server wants a term promised: twice, and once more for each takeover. */
const SENDS_MAX = 4;

/** Reads of the host's store. They are synchronous, and throw StoreError if a record is damaged. */
export interface HostAccounting {
  /** What the host has charged in all; undefined if nothing. */
  spentOf(scope: string): HostSpent | undefined;
  /** What the host's copy of the registry says; undefined if the copy has no such account. */
  creditedOf(scope: string): Credited | undefined;
  /** What a rotated key inherited from the key before it; undefined for all other scopes. */
  inheritedOf?(scope: string): InheritedUse | undefined;
  /** All accounts that the host may have charged. */
  accounts(): Iterable<string>;
}

export interface PartitionOptions extends ValkeyServerOptions {
  readonly incarnation: string;
  /** How many partitions there are. */
  readonly partitions: number;
  readonly accounting: HostAccounting;
  readonly isMine: (scope: string) => boolean;
  /** Logs scopes of which a row at the server is damaged. */
  readonly damage: Pick<DamagedScopes, 'logOnce'>;
  /** Reads the host's store, and logs scopes of which a record there is damaged. */
  readonly storeDamage: Pick<DamagedScopes, 'read'>;
  readonly memory: Pick<SharingMemory, 'of' | 'set' | 'promisedBy' | 'promiseTerm'>;
  readonly clock: Pick<Clock, 'monotonicMs'>;
  /** Among how many nodes limits are divided while the server is away; 0 if they are not divided. */
  readonly equalShares: number;
  /** Whether this node has one of the equal shares. */
  readonly hasShare: boolean;
  /** After so long a silence the server may end the node's life. */
  readonly nodeExpiryMs: number;
  /**
   * After how long a silence this node has no call any more: it begins calls until it expires
   * (LeaseManagerOptions.silentMsMax), and the last one takes as long as a call can. In ms.
   */
  readonly endedAfterMs: () => number;
  /** Called when nodes have joined or left. A new one is granted nothing until this one is heard again. */
  readonly onMembershipChanged?: (() => void) | undefined;
  /** The `calendar` that STOCKS_LUA describes. */
  readonly calendar: () => readonly [aheadMs: number, zoneMs: number];
}

export interface PartitionReply {
  /** The server's time. */
  readonly nowMs: number;
  readonly replies: readonly LeaseReply[];
}

/** The items of PromisedTerm, as scripts take them. */
type Term = readonly [term: number, server: string];
/** The reply of either script below if it wants a term promised first: `#inTerm` does so and sends again. */
type WantsTerm = readonly [status: 'term', nowMs: number, epoch: string, unused: unknown, wanted: Term];
/** Any other reply of ENTER_SCRIPT, whose comment explains the statuses. */
type Entered =
  | readonly [status: 'ok', nowMs: number, epoch: string, hostReported: boolean, toFree: readonly string[]]
  | readonly [status: 'evicts', nowMs: number, policy: string]
  /** `place`: of a node of a former version that still runs. */
  | readonly [status: 'former', nowMs: number, place: string]
  | readonly [status: 'parted', nowMs: number, place: string, unused: unknown, partitions: number];
/** Any other reply of EXCHANGE_SCRIPT, whose comment explains the statuses. */
type Exchanged = readonly [
  status: 'ok' | RefusedStatus,
  nowMs: number,
  epoch: string,
  waitMs: number,
  /** Replies; in a quarantine or check some of the places that are awaited. */
  details?: readonly unknown[],
  /** The version of the list of nodes; not with every status. */
  places?: number,
];

export class ValkeyPartition {
  readonly #options: PartitionOptions;
  readonly #server: ValkeyServer;
  #remembered: Remembered; // what the host has on disk of the server: its epoch and its list of nodes
  /** The version of the list of nodes in `#remembered`; undefined if it is of an earlier life. */
  #membershipVersion: number | undefined;
  /** How many pages the node reported when it last entered: REPORTED_SCRIPT compares the number. */
  #pages = 0;
  #promised: PromisedTerm; // the last term that this place has promised, as it is on disk
  /** The node's mark: the last exchange whose reply came, and its server. Sequence 0: none in this life. */
  #heard = { sequence: 0, server: '', atMs: 0 };
  readonly #serverClock = new ServerClock();
  readonly #held = new HeldLeases(); // what the node holds of the scopes of this partition

  constructor(options: PartitionOptions) {
    const { memory, partition, place } = options;
    this.#options = options;
    this.#server = new ValkeyServer(options);
    this.#remembered = memory.of(partition);
    this.#promised = memory.promisedBy(place, partition);
  }

  /**
   * Makes this life known to the server, and reports what the server may have lost. Resolves with the
   * server's time. If the store's record of an account is damaged, the server grants none of its money: what
   * was spent of it would be granted again.
   */
  async enter(): Promise<number> {
    const { incarnation, equalShares, hasShare, clock, partitions } = this.#options;
    const { timeInsteadMs } = this.#server;
    const newEpoch = randomBytes(16).toString('hex');
    const { epoch: rememberedEpoch, places } = this.#remembered;
    const { sequence, server, atMs } = this.#heard;
    // How many shares there are, or 0 if this node has none: so much the server holds back while this node is
    // silent. (An exchange says how many there are, always: see `held_back` in valkey-scripts.ts.)
    const args = [incarnation, timeInsteadMs, rememberedEpoch, newEpoch, hasShare ? equalShares : 0, places];
    const entered = await this.#inTerm<Entered>((promised) => {
      const ageMs = Math.max(0, Math.floor(clock.monotonicMs() - atMs));
      return this.#server.run(ENTER_SCRIPT, [...args, [sequence, server, ageMs], promised, partitions]);
    });
    if (entered[0] !== 'ok') throw notEntered(entered, partitions);
    const [, nowMs, epoch, hostReported, toFree] = entered;
    // Scopes of which earlier lives of the place hold something; none once these are freed.
    if (toFree.length > 0) await this.#freeFormer(toFree);
    let pages = 0;
    if (epoch !== rememberedEpoch) pages += await this.#reportHeld();
    if (!hostReported) pages += await this.#reportSpent();
    await this.#finish(epoch, pages);
    return nowMs;
  }

  /** One round trip. `asks` are of scopes of this partition. */
  async exchange(sequence: number, asks: readonly LeaseAsk[]): Promise<PartitionReply> {
    // Recorded without a reply before the asks are sent: if the reply is lost, its grants are not used.
    for (const ask of asks) this.#held.record(ask, undefined);
    const { storeDamage, clock } = this.#options;
    const sentMs = clock.monotonicMs();
    const leastServerMs = this.#serverClock.leastAt(sentMs);
    const encoded = asks.map((ask) => storeDamage.read(ask.scope, () => this.#encode(ask)));
    // An ask whose scope has a damaged record in the store is not sent: `encoded` is undefined.
    const scopes = asks.flatMap(({ scope }, index) => (encoded[index] === undefined ? [] : [scope]));
    const rows = encoded.filter((row) => row !== undefined);
    const [status, nowMs, epoch, waitMs, details = [], places] = await this.#inTerm<Exchanged>((promised) =>
      this.#server.run(EXCHANGE_SCRIPT, this.#exchangeHead(sequence, leastServerMs, promised), scopes, rows),
    );
    const reading = { serverMs: nowMs, sentMs, receivedMs: clock.monotonicMs() };
    const wasSetForward = this.#serverClock.wasSetForward(reading);
    if (status !== 'ok' && LOSSES.has(status)) this.#serverClock.forget();
    if (status === 'aged' && !wasSetForward)
      throw new CoordinatorLost('deadline', 'an exchange came to the server too late to be carried out');
    // Has the server grant nothing for a window. Then `lossOf` below rejects, as it does after `enter`.
    if (status === 'aged') await this.#server.carryOut(DISTRUST_SCRIPT, [this.#server.timeInsteadMs]);
    if (status === 'report') await this.enter();
    if (status !== 'ok') throw lossOf(status, waitMs, details as readonly string[]);
    // A server carries out only an exchange that promises its own term, so it is the server of the promise.
    this.#heard = { sequence, server: this.#promised.server, atMs: reading.receivedMs };
    this.#serverClock.record(reading);
    if (places !== this.#membershipVersion) {
      await this.#finish(epoch, this.#pages);
      this.#options.onMembershipChanged?.();
    }
    const rawReplies = (details as readonly (RawReply | string)[]).values();
    const replies = asks.map((ask, index) => {
      if (encoded[index] === undefined) return unknownReply(ask, nowMs);
      // There is a reply to each ask that was sent, in this order. A text says that a row is damaged.
      const reply = rawReplies.next().value!;
      const decoded = typeof reply === 'string' ? reply : decodable(() => decodeReply(ask, reply));
      if (typeof decoded !== 'string') return decoded;
      this.#recordDamage(ask.scope, decoded);
      return unknownReply(ask, nowMs);
    });
    // A reply with `isUnknown` does not say what was used.
    for (const [index, reply] of replies.entries())
      this.#held.record(asks[index]!, reply.isUnknown === true ? undefined : reply);
    return { nowMs, replies };
  }

  /** ARGV[3] of EXCHANGE_SCRIPT, whose comment names the items. */
  #exchangeHead(sequence: number, sentAtMs: number, promised: Term): unknown[] {
    const { incarnation, equalShares, nodeExpiryMs, calendar, endedAfterMs } = this.#options;
    const heard = [this.#heard.sequence, this.#heard.server];
    const args = [incarnation, sequence, sentAtMs, this.#server.timeInsteadMs, equalShares, nodeExpiryMs];
    return [...args, heard, promised, calendar(), endedAfterMs()];
  }

  /** See Coordinator.view. Resolves with the views by scope, without scopes of which a row is damaged. */
  async view(scopes: readonly string[], slots: readonly number[]): Promise<Map<string, ScopeView>> {
    if (scopes.length === 0) return new Map();
    const reply = await this.#server.run(VIEW_SCRIPT, [this.#server.timeInsteadMs, slots], scopes);
    const rawViews = reply as (RawView | string)[];
    const { accounting, storeDamage } = this.#options;
    const views = new Map<string, ScopeView>();
    scopes.forEach((scope, index) => {
      const rawView = rawViews[index]!;
      const view = storeDamage.read(scope, () => {
        if (typeof rawView === 'string') return rawView;
        const spent = accounting.spentOf(scope)?.totalPicoUnits;
        return decodable(() => decodeView(scope, rawView, spent));
      });
      if (typeof view === 'string') this.#recordDamage(scope, view);
      else if (view !== undefined) views.set(scope, view);
    });
    return views;
  }

  #encode(ask: LeaseAsk): readonly unknown[] {
    const { accounting } = this.#options;
    const { scope, stocks: { balance } = {} } = ask;
    if (balance === undefined) return encodeAsk(ask, undefined, undefined, accounting.inheritedOf?.(scope));
    // Read after `balance.unused`, as StockAsk wants.
    return encodeAsk(ask, accounting.spentOf(scope), accounting.creditedOf(scope), undefined);
  }

  #recordDamage(scope: string, error: string): void {
    this.#options.damage.logOnce(scope, { rows: this.#server.keys.of(scope).join(' '), error });
  }

  /**
   * Rejects with CoordinatorLost if this life is not known. Money of an account whose record is damaged stays
   * outstanding.
   */
  async leave(): Promise<void> {
    await this.#freeFormer([]);
    if (!(await this.#server.carryOut(LEAVE_SCRIPT, [this.#options.incarnation, true])))
      throw lossOf('unknown');
  }

  /** Calls `send`, and again if the server wants another term to be promised first. */
  async #inTerm<Reply extends Entered | Exchanged>(
    send: (promised: Term) => Promise<unknown>,
  ): Promise<Reply> {
    for (let tries = 0; tries < SENDS_MAX; tries++) {
      const reply = (await send([this.#promised.term, this.#promised.server])) as Reply | WantsTerm;
      if (!wantsTerm(reply)) return reply;
      const [term, server] = reply[4];
      // A place promises each term to one server only.
      if (term <= this.#promised.term) break;
      const { memory, place, partition } = this.#options;
      this.#promised = onDisk(() => memory.promiseTerm(place, partition, { term, server }));
    }
    throw new CoordinatorLost('failing', 'several servers take themselves for the master');
  }

  /** Frees what earlier lives of the place hold, from the scopes of `firstPage` on. */
  async #freeFormer(firstPage: readonly string[]): Promise<void> {
    const { incarnation } = this.#options;
    if (!(await this.#server.free(incarnation, firstPage, (scope) => this.#spentRow(scope))))
      throw lossOf('unknown');
  }

  /** Reports what this node holds; returns how many pages it sent. */
  #reportHeld(): Promise<number> {
    const held = this.#held;
    return this.#report(held.keys(), (scope) => heldRow(scope, held.of(scope), this.#spentRow(scope)));
  }

  /** Reports what the host has spent; returns how many pages it sent. */
  #reportSpent(): Promise<number> {
    const { accounting, isMine } = this.#options;
    return this.#report(accounting.accounts(), (scope) => {
      const spent = isMine(scope) && this.#spentRow(scope);
      return spent === false ? undefined : [scope, [], false, spent];
    });
  }

  #spentRow(scope: string): SpentRow {
    const { accounting, storeDamage } = this.#options;
    return storeDamage.read(scope, () => versioned(accounting.spentOf(scope))) ?? true;
  }

  /** Reports the scopes for which `rowOf` returns a row; returns how many pages it sent. */
  async #report(scopes: Iterable<string>, rowOf: (scope: string) => unknown[] | undefined): Promise<number> {
    const rows: unknown[][] = [];
    let pages = 0;
    for (const scope of scopes) {
      const row = rowOf(scope);
      if (row === undefined) continue;
      rows.push(row);
      if (rows.length < PAGE_SCOPES) continue;
      await this.#reportPage(rows.splice(0));
      pages += 1;
    }
    if (rows.length === 0) return pages;
    await this.#reportPage(rows);
    return pages + 1;
  }

  async #reportPage(rows: readonly unknown[][]): Promise<void> {
    const { incarnation, calendar } = this.#options;
    const scopes = rows.map(([scope]) => scope as string);
    const head = [incarnation, this.#server.timeInsteadMs, calendar()];
    if (!(await this.#server.carryOut(REPORT_SCRIPT, head, scopes, rows))) throw lossOf('unknown');
  }

  /** Tells the server how many pages reported all of this epoch. Writes the list of nodes to disk. */
  async #finish(epoch: string, pages: number): Promise<void> {
    this.#pages = pages;
    const reply = await this.#server.run(REPORTED_SCRIPT, [this.#options.incarnation, epoch, pages]);
    if (!Array.isArray(reply)) throw lossOf('unknown');
    const [version, places] = reply as [number, string[]];
    const { memory, partition } = this.#options;
    onDisk(() => memory.set(partition, { epoch, places }));
    this.#remembered = { epoch, places };
    this.#membershipVersion = version;
  }
}

/** Why the server does not let the node in. */
function notEntered(
  entered: Exclude<Entered, readonly ['ok', ...unknown[]]>,
  partitions: number,
): CoordinatorLost {
  switch (entered[0]) {
    case 'evicts':
      return new CoordinatorLost(
        'failing',
        `the server evicts keys (maxmemory-policy ${entered[2]}), want noeviction: ` +
          'what is evicted would be given twice',
      );
    case 'former':
      return new CoordinatorLost(
        'failing',
        `${entered[2]} (host:process) is of another version and still uses the server: stop all its gateways first`,
      );
    case 'parted':
      return new CoordinatorLost(
        'failing',
        `${entered[2]} (host:process) has sharing.partitions ${entered[4]}, and this host ${partitions}: ` +
          'want the same on all hosts',
      );
  }
}

function wantsTerm(reply: Entered | Exchanged | WantsTerm): reply is WantsTerm {
  return reply[0] === 'term';
}

/** Turns a failed write into a CoordinatorLost: while the disk is full, nothing is leased and calls go on. */
function onDisk<Result>(write: () => Result): Result {
  try {
    return write();
  } catch (error) {
    const message = `what this host has to remember of the server: ${errorText(error)}`;
    throw new CoordinatorLost('failing', message, { cause: error });
  }
}

/** The row of a scope in ARGV[4] of REPORT_SCRIPT. */
function heldRow(scope: string, held: HeldScope, spent: SpentRow): unknown[] {
  const counted = countedOf(held).map(([name, { period, used, unused, seen }]) => [
    STOCK_CODES[name],
    period,
    ...[used, unused, seen].map(Number),
  ]);
  return [scope, counted, held.balance !== undefined && moneyPair(held.balance.unused), spent];
}
