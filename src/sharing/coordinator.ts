/**
 * The coordinator: who knows the limits and the money of all nodes and lends them out in leases. This file is what nodes and
 * coordinators agree on; the implementations are MemoryAuthority (reference), LmdbAuthority (processes of one host) and
 * ValkeyAuthority (hosts). Main thread of a gateway process.
 *
 * A node is one life of a gateway process. What it is granted it counts and uses by itself; what it does not use it gives back,
 * or it expires. A permit counts as used from the moment it is granted, so the sum over all nodes is never above the limit.
 *
 * Two kinds of resources:
 * - Requests of the minute are granted in grants of a limited validity. The coordinator counts a grant that is valid up to the end
 *   of tick E as if it were used at the end of E, and it weighs until a minute after that. So any validity is exact, and a
 *   longer one only weighs longer. What a response granted that was lost is taken back by the next ask, which tells by its order
 *   that the node has not heard of it.
 * - Calls of the day, calls in flight and money are granted by state: every ask says what the node holds now, the coordinator writes
 *   down what was said plus what it lends more. A response that is lost is thereby taken back by the next ask.
 *
 * A node has one exchange on its way at a time, and it is numbered: an coordinator does nothing upon one that is not newer than
 * the last it saw of the node, so that a delayed duplicate harms nobody.
 */
import type { PicoUnits, WallMs } from '../core/units.js';

/** Asks that one exchange carries at most: some 100 KB, and some milliseconds of an coordinator's time. */
export const EXCHANGE_ASKS_MAX = 1_000;

/** Whose life a lease belongs to. */
export interface NodeIdentity {
  /** Made once for each data directory. */
  readonly host: string;
  /** Index of the process in its group. */
  readonly slot: number;
  /** Random, anew for each life. */
  readonly incarnation: string;
}

/** As in force at the asker, 0 where there is none: that resource is then never asked for. */
export interface ScopeLimits {
  readonly requestsPerMinute: number;
  readonly callsPerDay: number;
  readonly callsInFlight: number;
}

/** Permits of an earlier grant that were not used and will not be. They may have expired, up to a minute ago. */
export interface ReturnedPermits {
  /** Of the grant's answer. */
  readonly tick: number;
  readonly count: number;
}

/**
 * Where an ask stands among those of its node's life for one scope's minute. What a later ask than `heardNumber` was granted, the node
 * has not heard of and never will; what that ask returned, this one returns again.
 */
export interface AskOrder {
  /** Grows from ask to ask. */
  readonly number: number;
  /** At least that of the last ask whose answer came. */
  readonly heardNumber: number;
}

/** How much more is wanted: at least `least` or nothing at all, at most `most`; both 0 where the ask only reports. */
export interface Wanted<Amount> {
  readonly least: Amount;
  readonly most: Amount;
}

export interface MinuteAsk extends Wanted<number> {
  /** How long the permits should be valid; the coordinator decides. */
  readonly forMs: number;
  /** To be set aside and hardly ever used: valid for long, however busy the account is. */
  readonly isStandBy?: boolean;
  readonly returned: readonly ReturnedPermits[];
  /** Left out: what a lost answer has granted weighs as if it had been used. */
  readonly order?: AskOrder;
}

export interface DayAsk extends Wanted<number> {
  /** The day of the counts, in days since 1970-01-01 UTC+8; 0 where the node has none. */
  readonly dayNumber: number;
  /** Calls of that day that this life of the node has used, less those that it took back. */
  readonly used: number;
  /** Calls of that day that it was granted and still has. */
  readonly unused: number;
}

export interface SlotsAsk extends Wanted<number> {
  /** Places for calls in flight that it holds, taken or not. */
  readonly outstanding: number;
}

/** What all processes of a host have charged an account, as its store says. */
export interface HostSpent {
  readonly totalPicoUnits: PicoUnits;
  /** Grows with each change of the total, which a reversal makes smaller: the newest counts, not the largest. */
  readonly version: number;
}

export interface MoneyAsk extends Wanted<PicoUnits> {
  /**
   * Money that this node was granted and that no store has as spent: unspent, held by calls in flight, or charged and not yet
   * flushed. Read after `spent`, so that money is counted twice for a moment, never not at all.
   */
  readonly outstanding: PicoUnits;
  /** For an coordinator that does not read the host's store itself. */
  readonly spent?: HostSpent;
}

/** What one node wants of one scope. A resource that is left out is not looked at, and not answered. */
export interface LeaseAsk {
  /** An account's id, or that of a key that has limits of its own. */
  readonly scope: string;
  readonly limits: ScopeLimits;
  readonly minute?: MinuteAsk;
  readonly day?: DayAsk;
  /** Of accounts. */
  readonly slots?: SlotsAsk;
  /** Of accounts. */
  readonly money?: MoneyAsk;
}

interface Grant<Amount> {
  /** Between `least` and `most`, or nothing. */
  readonly granted: Amount;
  /** What the coordinator could still lend to anybody, after this grant. */
  readonly remaining: Amount;
  /**
   * Other nodes hold some that they may give back: a request may wait for it. True where that is not known. Of the minute: permits that
   * have not expired; of the day and of money: what they hold and have not used; of slots: any.
   */
  readonly heldByOthers: boolean;
}

export interface MinuteGrant extends Grant<number> {
  /** Up to the end of this tick of the coordinator; for `ReturnedPermits`. */
  readonly tick: number;
  /** How long the permits are valid, from the moment the coordinator granted them; the node counts from when it sent the ask. */
  readonly validMs: number;
  /** When a permit more than `remaining` will be free without anybody giving one back; 0 where one remains now. */
  readonly freeInMs: number;
}

export interface DayGrant extends Grant<number> {
  /** The day that was granted from: the coordinator's today, or what an ask named where that is later. */
  readonly dayNumber: number;
  /** When that day ends. */
  readonly endsInMs: number;
}

export type SlotsGrant = Grant<number>;
export type MoneyGrant = Grant<PicoUnits>;

/** One of each resource that was asked for. */
export interface LeaseReply {
  readonly minute?: MinuteGrant;
  readonly day?: DayGrant;
  readonly slots?: SlotsGrant;
  readonly money?: MoneyGrant;
  /** Something that was wanted is not here, and who would know could not be asked. */
  readonly isUnknown?: boolean;
}

export interface ExchangeReply {
  /** The coordinator's calendar when it answered. */
  readonly wallMs: WallMs;
  /** In the order of the asks. */
  readonly answers: readonly LeaseReply[];
  /** By the node itself, which is cut off: what is given back now reaches nobody, and the node itself no more, until that is over. */
  readonly isAlone?: true;
}

export interface JoinReply {
  readonly wallMs: WallMs;
}

/** What all nodes together use of a scope, for an operator. */
export interface ScopeView {
  readonly scope: string;
  /** Permits that weigh in the current minute, granted and unused ones included. */
  readonly minuteUsed: number;
  /** The day that was last counted and its calls, granted and unused ones included. */
  readonly dayNumber: number;
  readonly dayUsed: number;
  readonly callsInFlight: number;
  /** Lent and not yet spent, by all nodes, as far as they have told. */
  readonly moneyOutstanding: PicoUnits;
  /** By all hosts: this one as its store has it, the others as far as they have told. */
  readonly spent: PicoUnits;
}

/** Why an coordinator could not be asked. */
export type LossReason =
  /** No connection, or it broke. */
  | 'unreachable'
  /** No answer in time; whether it was carried out is not known. */
  | 'deadline'
  /** It answered that it cannot: full, read-only, wrong password. */
  | 'failing'
  /** It has lost what it knew and waits until nobody can be above a limit. */
  | 'quarantine'
  /** It does not know this life of the node (any more): join again. */
  | 'unknown_node'
  /** `close` was called. */
  | 'closed';

/** The coordinator was lost: nothing was granted, and what was reported may or may not have been taken. */
export class CoordinatorLost extends Error {
  readonly code = 'authority_lost';
  readonly reason: LossReason;

  constructor(reason: LossReason, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'CoordinatorLost';
    this.reason = reason;
  }
}

/** A node's end. Every wait is bounded by the implementation, in some seconds, and ends in `AuthorityLost`. */
export interface Coordinator {
  /**
   * Makes this life of the node known and voids what earlier lives of the same host and slot hold: their slots and money at
   * once; their permits of the minute expire, their calls of the day stay counted. Before the first exchange, and again after
   * `unknown_node`. One round trip. Rejects with AuthorityLost.
   */
  join(): Promise<JoinReply>;
  /**
   * Carries at most EXCHANGE_ASKS_MAX asks, each of another scope, or none: every exchange is a sign of life too. Each ask
   * is carried out whole by itself, its resources independent of each other. One at a time: wait for the last one's end. One
   * round trip. Rejects with AuthorityLost: then it may have been carried out or not. What it returned of the minute is returned again under
   * an `order` alone, and what is held is said anew by the next.
   */
  exchange(asks: readonly LeaseAsk[]): Promise<ExchangeReply>;
  /** In the order of `scopes`, at most EXCHANGE_ASKS_MAX; of an unknown one all is 0. Any time. Rejects with AuthorityLost. */
  look(scopes: readonly string[]): Promise<ScopeView[]>;
  /** The node ends: what it holds is free, its calls of the day are counted as used. Rejects with AuthorityLost. */
  leave(): Promise<void>;
  /** Gives back connections and files; nothing is said to the coordinator. What is on its way ends in `AuthorityLost`. */
  close(): Promise<void>;
}
