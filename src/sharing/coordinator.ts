/**
 * The protocol between nodes and their coordinator, which knows the limits and the money of all and grants
 * them in leases. The implementations are `MemoryCoordinator` (reference), `LmdbCoordinator` (processes of
 * one host) and `ValkeyCoordinator` (hosts). Main thread of a gateway process.
 *
 * A node is one life of a gateway process. It counts by itself what it uses of its grants; what it does not
 * use it gives back, or it expires. A permit counts as used from the moment it is granted, so all nodes
 * together never exceed a limit.
 *
 * There are two kinds of resources:
 * - Permits of the minute have a limited validity. The coordinator counts a grant that is valid to the end
 *   of tick E as used at the end of E, and it weighs for a minute after that. So any validity is exact, and a
 *   longer one only weighs longer. If the reply with a grant is lost, the next ask says by its order that the
 *   node has not heard of it, and the grant is taken back.
 * - Calls of the day, call slots and money are granted by state. Every ask says what the node holds now, and
 *   the coordinator records that and what it grants more. The next ask thereby takes back a lost grant.
 *
 * A node makes one exchange at a time and numbers them. A coordinator ignores an exchange that is not newer
 * than the last one of that node, so a delayed duplicate does no harm.
 */
import type { PicoUnits, WallMs } from '../core/units.js';

/** The most asks in one exchange: some 100 KB, and some milliseconds of a coordinator's time. */
export const EXCHANGE_ASKS_MAX = 1_000;

/** The life that a lease belongs to. */
export interface NodeIdentity {
  /** Made once for each data directory. */
  readonly host: string;
  /** Index of the process in its group. */
  readonly slot: number;
  /** Random, anew for each life. */
  readonly incarnation: string;
}

/** The limits in force at the node that asks; 0 means no limit, and that resource is then never asked for. */
export interface ScopeLimits {
  readonly requestsPerMinute: number;
  readonly callsPerDay: number;
  readonly callsInFlight: number;
}

/** Permits of an earlier grant that were not used and will not be. They may have expired since. */
export interface ReturnedPermits {
  /** The tick of that grant. */
  readonly tick: number;
  readonly count: number;
}

/**
 * The order of a node's asks for one scope's minute. The node has not heard, nor will, of a grant to an ask
 * after `heardNumber`; the permits that such an ask returned are returned again by this one.
 */
export interface AskOrder {
  /** Grows from ask to ask. */
  readonly number: number;
  /** At least the number of the last ask whose reply came. */
  readonly heardNumber: number;
}

/** How much more is wanted: between `least` and `most`, or nothing. Both are 0 if the ask only reports. */
export interface Wanted<Amount> {
  readonly least: Amount;
  readonly most: Amount;
}

export interface MinuteAsk extends Wanted<number> {
  /** How long the permits should be valid; the coordinator decides. */
  readonly forMs: number;
  /** For a fallback quota, which is hardly ever used: valid for long, however busy the account is. */
  readonly isFallback?: boolean;
  readonly returned: readonly ReturnedPermits[];
  /** Without it, a grant in a lost reply weighs as if it had been used. */
  readonly order?: AskOrder;
}

export interface DayAsk extends Wanted<number> {
  /** The day of the counts, in days since 1970-01-01 UTC+8; 0 if the node has none. */
  readonly dayNumber: number;
  /** Calls of that day that this life has used, less those that were taken back. */
  readonly used: number;
  /** Calls of that day that it was granted and has not used. */
  readonly unused: number;
}

export interface SlotsAsk extends Wanted<number> {
  /** Call slots that the node holds, taken or not. */
  readonly outstanding: number;
}

/** What all processes of a host have charged an account, by the host's store. */
export interface HostSpent {
  readonly totalPicoUnits: PicoUnits;
  /** Grows with each change of the total. A reversal makes the total smaller, so the newest counts. */
  readonly version: number;
}

export interface MoneyAsk extends Wanted<PicoUnits> {
  /**
   * Money that this node was granted and that no store has as spent: unspent, held by calls in flight, or
   * charged and not yet flushed. It is read before what the host has spent, so that a charge which is flushed
   * in between is counted twice for a moment, never not at all.
   */
  readonly outstanding: PicoUnits;
  /** For a coordinator that does not read the host's store itself. */
  readonly spent?: HostSpent;
}

/** What one node reports and wants of one scope. A resource that is left out is neither read nor answered. */
export interface LeaseAsk {
  /** The id of an account, or of a key that has limits of its own. */
  readonly scope: string;
  readonly limits: ScopeLimits;
  readonly minute?: MinuteAsk;
  readonly day?: DayAsk;
  /** Only of accounts. */
  readonly slots?: SlotsAsk;
  /** Only of accounts. */
  readonly money?: MoneyAsk;
}

interface Grant<Amount> {
  /** Between `least` and `most`, or nothing. */
  readonly granted: Amount;
  /** What the coordinator could still grant to anybody, after this grant. */
  readonly remaining: Amount;
  /**
   * Other nodes hold some that they may give back, so a request may wait for it: unexpired permits, unused
   * calls or money, any slots. True if that is not known.
   */
  readonly heldByOthers: boolean;
}

export interface MinuteGrant extends Grant<number> {
  /** The permits are valid to the end of this tick; `ReturnedPermits` names it. */
  readonly tick: number;
  /** How long the permits are valid from the grant on; the node counts from when it sent the ask. */
  readonly validMs: number;
  /** When a permit will be free if nobody gives one back; 0 if one remains now. */
  readonly freeInMs: number;
}

export interface DayGrant extends Grant<number> {
  /** The day of the grant: the coordinator's today, or a later day that an ask has named. */
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
  /** Something that was wanted is not here, and the coordinator, which would know, cannot be asked. */
  readonly isUnknown?: boolean;
}

export interface ExchangeReply {
  /** The coordinator's calendar when it answered. */
  readonly wallMs: WallMs;
  /** In the order of the asks. */
  readonly answers: readonly LeaseReply[];
  /** The node replied to itself because it is cut off; what it gives back now reaches nobody. */
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
  /** The day that was last counted. */
  readonly dayNumber: number;
  /** Calls of that day, granted and unused ones included. */
  readonly dayUsed: number;
  readonly callsInFlight: number;
  /** Granted to all nodes and not yet spent, as far as they have reported. */
  readonly moneyOutstanding: PicoUnits;
  /** Spent by all hosts: by this one as its store says, by the others as far as they have reported. */
  readonly spent: PicoUnits;
}

/** Why a coordinator could not be asked. */
export type LossReason =
  /** No connection, or it broke. */
  | 'unreachable'
  /** No reply in time; the exchange may have been carried out or not. */
  | 'deadline'
  /** It replied that it cannot: full, read-only, wrong password. */
  | 'failing'
  /** It has lost its data, and waits until nobody can exceed a limit. */
  | 'quarantine'
  /** It may have lost data, and finds out. */
  | 'checking'
  /** It does not know this life of the node, or no longer: join again. */
  | 'unknown_node'
  /** `close` was called. */
  | 'closed';

/** The coordinator was lost: nothing was granted; what was reported may have been recorded or not. */
export class CoordinatorLost extends Error {
  readonly code = 'authority_lost';
  readonly reason: LossReason;

  /** How long nothing will be granted, as far as that is known. */
  readonly waitMs: number | undefined;

  constructor(reason: LossReason, message: string, options?: ErrorOptions & { readonly waitMs?: number }) {
    super(message, options);
    this.name = 'CoordinatorLost';
    this.reason = reason;
    this.waitMs = options?.waitMs;
  }
}

/** What names a node at its coordinator whatever its life; the store of a host remembers it too. */
export function placeOf({ host, slot }: NodeIdentity): string {
  return `${host}:${slot}`;
}

/** For an exchange of a life that the coordinator does not know, or no longer. */
export function unknownNode(): CoordinatorLost {
  return new CoordinatorLost('unknown_node', 'this life of the node is not known');
}

/** A node's end. The implementation bounds every wait to some seconds, then rejects with CoordinatorLost. */
export interface Coordinator {
  /**
   * Makes this life of the node known and ends earlier lives at the same place: their slots and money are
   * free at once, their permits expire, their calls of the day stay counted. Call it before the first
   * exchange, and again after `unknown_node`. One round trip. Rejects with CoordinatorLost.
   */
  join(): Promise<JoinReply>;
  /**
   * Carries at most EXCHANGE_ASKS_MAX asks, each of another scope; an empty one is a sign of life. Each ask
   * is carried out by itself, and its resources are independent of each other. Wait for the end of the last
   * exchange before the next. One round trip.
   *
   * Rejects with CoordinatorLost; then it may have been carried out or not. The next ask reports what is held
   * anyway; it may return the same permits again only if it has an `order`.
   */
  exchange(asks: readonly LeaseAsk[]): Promise<ExchangeReply>;
  /**
   * Views in the order of `scopes`, at most EXCHANGE_ASKS_MAX; all is 0 for an unknown scope. May be called
   * during an exchange. Rejects with CoordinatorLost.
   */
  look(scopes: readonly string[]): Promise<ScopeView[]>;
  /** Ends the node: what it holds is free, its calls of the day stay used. Rejects with CoordinatorLost. */
  leave(): Promise<void>;
  /** Closes connections and files, and sends nothing. Pending calls reject with CoordinatorLost. */
  close(): Promise<void>;
}
