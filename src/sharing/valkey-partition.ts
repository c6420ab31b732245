/**
 * The node's side of one partition at the server: it enters the partition, exchanges, views and leaves. If
 * the server may have lost data, it reports what the node holds and what the host has spent.
 * valkey-coordinator.ts has one for each partition. Main thread. Calls reject with CoordinatorLost, or with
 * errors that the caller turns into one (coordinator-errors.ts).
 *
 * Must hold: a promise of a term (valkey-marks.ts) is on disk before it is sent. After a loss all that is
 * held is reported before the server grants. A damaged record of the host's store costs its own scope alone.
 * Tests, below test/unit/sharing: valkey-blink.test.ts
 * (terms), valkey-loss.test.ts (reports), valkey-damage.test.ts (records).
 */
import { randomBytes } from 'node:crypto';
import type { Clock } from '../core/clock.js';
import { errorText } from '../core/errors.js';
import {
  CoordinatorLost,
  entriesOf,
  type LeaseReply,
  type LeaseAsk,
  type ScopeView,
  unknownNode,
} from './coordinator.js';
import { type DamagedScopes, unknownReply } from './coordinator-errors.js';
import { HeldLeases, type HeldScope } from './held-leases.js';
import type { HostAccounting } from './host-accounting.js';
import { ServerClock } from './server-clock.js';
import type { PromisedTerm, Remembered, SharingMemory } from './sharing-memory.js';
import {
  countedOf,
  decodable,
  decodeReply,
  decodeView,
  encodeAsk,
  moneyPair,
  type RawAsk,
  type SpentRow,
  STOCK_CODES,
  versioned,
} from './valkey-codec.js';
import { EXCHANGE_SCRIPT, LOSSES, lossOf } from './valkey-exchange.js';
import {
  DISTRUST_SCRIPT,
  ENTER_SCRIPT,
  LEAVE_SCRIPT,
  notEntered,
  REPORTED_SCRIPT,
} from './valkey-life-scripts.js';
import { type Mark, type WantsTerm, wantsTerm } from './valkey-marks.js';
import { PAGE_SCOPES, REPORT_SCRIPT, type ReportedRow, VIEW_SCRIPT } from './valkey-scripts.js';
import { ValkeyServer, type ValkeyServerOptions } from './valkey-server.js';
import type { CalendarHead } from './valkey-stocks.js';

/** How often a call is sent if the server wants a term promised: twice, and once more for each takeover. */
const SENDS_MAX = 4;

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
  readonly calendar: () => CalendarHead;
}

export interface PartitionReply {
  /** The server's time. */
  readonly nowMs: number;
  readonly replies: readonly LeaseReply[];
}

export class ValkeyPartition {
  readonly #options: PartitionOptions;
  readonly #server: ValkeyServer;
  #remembered: Remembered; // what the host has on disk of the server: its epoch and its list of nodes
  /** The version of the list of nodes in `#remembered`; undefined if it is of an earlier life. */
  #membershipVersion: number | undefined;
  /** How many pages the node reported when it last entered: REPORTED_SCRIPT compares the number. */
  #pages = 0;
  #promised: PromisedTerm; // the last term that this place has promised, as it is on disk
  #heard: Mark = { sequence: 0, server: '' };
  #heardMs = 0; // when the reply of `#heard` came (monotonic)
  /** Whether the server has ended this life, as when an operator has forgotten the host, since it entered. */
  #wasEnded = false;
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
    const { epoch: remembered, places } = this.#remembered;
    const newEpoch = randomBytes(16).toString('hex');
    const entered = await this.#inTerm((promised) => {
      const agoMs = Math.max(0, Math.floor(clock.monotonicMs() - this.#heardMs));
      const heard = { ...this.#heard, agoMs };
      const shares = hasShare ? equalShares : 0;
      const head = {
        incarnation,
        remembered,
        places,
        newEpoch,
        equalShares: shares,
        heard,
        promised,
        partitions,
      };
      return this.#server.run(ENTER_SCRIPT, head);
    });
    if (entered.status !== 'ok') throw notEntered(entered, partitions);
    const { nowMs, epoch, hostReported, toFree } = entered;
    if (toFree.length > 0) await this.#freeFormer(toFree);
    let pages = 0;
    const hasLost = epoch !== remembered;
    if (hasLost || this.#wasEnded) pages += await this.#reportHeld({ hasLost });
    if (!hostReported) pages += await this.#reportSpent();
    await this.#finish(epoch, pages);
    this.#wasEnded = false;
    return nowMs;
  }

  /** One round trip. `asks` are of scopes of this partition. */
  async exchange(sequence: number, asks: readonly LeaseAsk[]): Promise<PartitionReply> {
    // Recorded without a reply before the asks are sent: if the reply is lost, its grants are not used.
    for (const ask of asks) this.#held.record(ask, undefined);
    const { storeDamage, clock, incarnation, equalShares, nodeExpiryMs, calendar, endedAfterMs } =
      this.#options;
    const sentMs = clock.monotonicMs();
    const sentAtMs = this.#serverClock.leastAt(sentMs);
    const encoded = asks.map((ask) => storeDamage.read(ask.scope, () => this.#encode(ask)));
    // An ask whose scope has a damaged record in the store is not sent: `encoded` is undefined.
    const scopes = asks.flatMap(({ scope }, index) => (encoded[index] === undefined ? [] : [scope]));
    const rows = encoded.filter((row) => row !== undefined);
    const exchanged = await this.#inTerm((promised) => {
      const head = {
        incarnation,
        sequence,
        sentAtMs,
        equalShares,
        expiryMs: nodeExpiryMs,
        endedAfterMs: endedAfterMs(),
        heard: this.#heard,
        promised,
        ...calendar(),
      };
      return this.#server.run(EXCHANGE_SCRIPT, head, scopes, rows);
    });
    const { nowMs } = exchanged;
    const reading = { serverMs: nowMs, sentMs, receivedMs: clock.monotonicMs() };
    if (exchanged.status !== 'ok') {
      const { status, waitMs, awaited } = exchanged;
      this.#wasEnded ||= status === 'unknown';
      const wasSetForward = this.#serverClock.wasSetForward(reading);
      if (LOSSES.has(status)) this.#serverClock.forget();
      if (status === 'aged' && !wasSetForward)
        throw new CoordinatorLost('deadline', 'an exchange came to the server too late to be carried out');
      // Has the server grant nothing for a window. Then `lossOf` below rejects, as it does after `enter`.
      if (status === 'aged') await this.#server.carryOut(DISTRUST_SCRIPT, {});
      if (status === 'report') await this.enter();
      throw lossOf(status, waitMs, awaited);
    }
    // A server carries out only an exchange that promises its own term, so it is the server of the promise.
    this.#heard = { sequence, server: this.#promised.server };
    this.#heardMs = reading.receivedMs;
    this.#serverClock.record(reading);
    if (exchanged.places !== this.#membershipVersion) {
      await this.#finish(exchanged.epoch, this.#pages);
      this.#options.onMembershipChanged?.();
    }
    const rawReplies = exchanged.replies.values();
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

  /** See Coordinator.view. Resolves with the views by scope, without scopes of which a row is damaged. */
  async view(scopes: readonly string[], slots: readonly number[]): Promise<Map<string, ScopeView>> {
    if (scopes.length === 0) return new Map();
    const rawViews = await this.#server.run(VIEW_SCRIPT, { slots }, scopes);
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

  #encode(ask: LeaseAsk): RawAsk {
    const { accounting } = this.#options;
    const { scope, stocks: { balance } = {} } = ask;
    if (balance === undefined) return encodeAsk(ask, undefined, undefined, accounting.inheritedOf(scope));
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
    const { incarnation } = this.#options;
    if (!(await this.#server.carryOut(LEAVE_SCRIPT, { incarnation, staysIfAwaited: true })))
      throw unknownNode();
  }

  /** Calls `send`, and again if the server wants another term to be promised first. */
  async #inTerm<Reply extends { readonly status: string }>(
    send: (promised: PromisedTerm) => Promise<Reply | WantsTerm>,
  ): Promise<Exclude<Reply, WantsTerm>> {
    for (let tries = 0; tries < SENDS_MAX; tries++) {
      const reply = await send(this.#promised);
      if (!wantsTerm(reply)) return reply as Exclude<Reply, WantsTerm>;
      // A place promises each term to one server only.
      if (reply.wanted.term <= this.#promised.term) break;
      const { memory, place, partition } = this.#options;
      this.#promised = onDisk(() => memory.promiseTerm(place, partition, reply.wanted));
    }
    throw new CoordinatorLost('failing', 'several servers take themselves for the master');
  }

  /** Frees what earlier lives of the place hold, from the scopes of `firstPage` on. */
  async #freeFormer(firstPage: readonly string[]): Promise<void> {
    const { incarnation } = this.#options;
    if (!(await this.#server.free(incarnation, firstPage, (scope) => this.#spentRow(scope))))
      throw unknownNode();
  }

  /**
   * Reports what this node holds; returns how many pages it sent. If the server has lost nothing and has
   * ended this life, reports what that has freed: days and months still count what the life had used and
   * held.
   */
  #reportHeld({ hasLost }: { readonly hasLost: boolean }): Promise<number> {
    const held = this.#held;
    return this.#report(held.keys(), (scope) => {
      const entries = entriesOf(held.of(scope)).filter(([, { period }]) => hasLost || period === 0);
      return heldRow(scope, Object.fromEntries(entries), this.#spentRow(scope));
    });
  }

  /** Reports what the host has spent; returns how many pages it sent. */
  #reportSpent(): Promise<number> {
    const { accounting, isMine } = this.#options;
    return this.#report(accounting.accounts(), (scope) => {
      const spent = isMine(scope) && this.#spentRow(scope);
      return spent === false ? undefined : { scope, stocks: [], money: false, spent };
    });
  }

  #spentRow(scope: string): SpentRow {
    const { accounting, storeDamage } = this.#options;
    return storeDamage.read(scope, () => versioned(accounting.spentOf(scope))) ?? true;
  }

  /** Reports the scopes for which `rowOf` returns a row; returns how many pages it sent. */
  async #report(
    scopes: Iterable<string>,
    rowOf: (scope: string) => ReportedRow | undefined,
  ): Promise<number> {
    const rows: ReportedRow[] = [];
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

  async #reportPage(rows: readonly ReportedRow[]): Promise<void> {
    const { incarnation, calendar } = this.#options;
    const scopes = rows.map(({ scope }) => scope);
    const head = { incarnation, ...calendar() };
    if (!(await this.#server.carryOut(REPORT_SCRIPT, head, scopes, rows))) throw unknownNode();
  }

  /** Tells the server how many pages reported all of this epoch. Writes the list of nodes to disk. */
  async #finish(epoch: string, pages: number): Promise<void> {
    this.#pages = pages;
    const { memory, partition, incarnation } = this.#options;
    const reply = await this.#server.run(REPORTED_SCRIPT, { incarnation, epoch, pages });
    if (reply === false) throw unknownNode();
    const { version, places } = reply;
    onDisk(() => memory.set(partition, { epoch, places }));
    this.#remembered = { epoch, places };
    this.#membershipVersion = version;
  }
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

function heldRow(scope: string, held: HeldScope, spent: SpentRow): ReportedRow {
  const stocks = countedOf(held).map(([name, { period, used, unused, seen }]) => ({
    code: STOCK_CODES[name],
    period,
    used: Number(used),
    unused: Number(unused),
    seen: Number(seen),
  }));
  return { scope, stocks, money: held.balance !== undefined && moneyPair(held.balance.unused), spent };
}
