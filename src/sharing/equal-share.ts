/**
 * A coordinator that sends heartbeats for its node, and that grants by itself while the node is cut off from
 * the server. It wraps `ValkeyCoordinator`. open-hosts.ts makes three for a process: for its calls
 * (lease-manager.ts), for debits (debits.ts), and for fallback quotas (fallback-coordinator.ts). Main thread.
 *
 * A node sends a heartbeat (an exchange, mostly without asks) every few seconds even if it holds nothing:
 * after a loss of data the server waits for every node.
 *
 * In this file a _request_ is a join, an exchange or a leave. The server is _lost_ from a failed exchange to
 * the next reply. With `on_authority_loss: equal_share` the node is then _alone_: it grants to its own calls.
 * Stocks come from the fallback quota until that is used up. Permits come from the fallback quota at first,
 * and later from the node's _share_: an equal part of each minute's limit. Why the limit holds:
 * - When the server has not heard a node for SILENT_MS, it holds the node's share back, until QUARANTINE_MS
 *   after the node is back or has expired: a node does not report the permits of its share, and no permit
 *   weighs for longer. Grants from before the silence weigh for QUARANTINE_MS at most, too.
 * - A request may take SILENT_MS to reach the server. A slower one finds the share held back. So a share
 *   begins SHARE_BEGINS_MS after the server may last have heard the node; a request without a reply postpones
 *   that, because the server may have heard it.
 * - A share ends at the first reply, when a request may have been heard, or when the node expires, which only
 *   a request with a reply postpones.
 * - If the server is gone, all nodes use their shares, which together are the limit.
 * - A node that has not joined in its life has no share, because its earlier life may have used the share.
 *
 * Must hold: no limit is exceeded, whichever nodes are cut off. (The unit test makes random cuts and use.)
 * What was granted alone is reported before anything else is asked of the server.
 */
import type { Clock } from '../core/clock.js';
import type { WallMs } from '../core/units.js';
import { CoordinatorContact } from './coordinator-contact.js';
import {
  type Coordinator,
  CoordinatorLost,
  type ExchangeReply,
  type LeaseAsk,
  type MinuteGrant,
  type ScopeView,
} from './coordinator.js';
import type { FallbackCoordinator } from './fallback-coordinator.js';
import { type LeaseTimers, SYSTEM_TIMERS } from './lease-timers.js';
import { permitsOfShare, replyAlone, UnreportedAsks, withoutLocalPermits } from './replies-alone.js';
import { MinuteBuckets } from './scope-grants.js';
import { wasNotSent } from './valkey-client.js';
import { QUARANTINE_MS, SILENT_MS } from './valkey-lua.js';

/** A node's share begins so long after the last moment at which the server may have heard the node. */
export const SHARE_BEGINS_MS = 2 * SILENT_MS + QUARANTINE_MS;
/** How often a node sends a heartbeat: so often that the server does not hold its share back. */
const HEARTBEAT_MS = SILENT_MS / 4;
/** How soon a heartbeat follows if a connection broke, or another node of the process lost the server. */
const HEARTBEAT_SOON_MS = 100;

const THIS_NODE = 'this'; // the node's name in the record of what its own share has granted

export interface EqualShareOptions {
  readonly coordinator: Coordinator;
  readonly clock: Clock;
  /**
   * Hosts times processes, by this host's settings (64,000 at most); 0 if this node has no share. A host with
   * more processes has smaller shares, so the shares of each host together are one part of a limit. Of a
   * limit below this number a share is nothing: shares are rounded down, as in `held_back` of
   * valkey-exchange.ts, or together they would be more than the limit.
   */
  readonly shares: number;
  readonly nodeExpiryMs: number; // after so long a silence the server may end the node's life
  /**
   * Makes the fallback quotas of this node; called only if there are shares. The fallback's node may report
   * only if `mayReport`: while the calls' node has something unreported, the server would count it at both.
   */
  readonly openFallback?: (mayReport: () => boolean) => FallbackCoordinator;
  readonly onLost?: () => void; // called when a request to the server failed
  /** Called with a reason when the node begins to be alone, and with undefined when that ends. */
  readonly onAlone?: (reason: string | undefined) => void;
  readonly random?: () => number; // in [0, 1); default Math.random
  readonly timers?: LeaseTimers; // default SYSTEM_TIMERS
}

export class EqualShare implements Coordinator {
  readonly #options: EqualShareOptions;
  /** What was granted of the shares, by scope; never more scopes than the ledger has. */
  readonly #shareGrants = new Map<string, MinuteBuckets>();
  readonly #fallback: FallbackCoordinator | undefined;
  readonly #unreported = new UnreportedAsks();
  readonly #contact: CoordinatorContact;
  /** The latest moment at which the server may have heard the node; Infinity before the node has joined. */
  #maybeHeardMs = Infinity;
  /** When the last request with a reply was sent: the node's life ends nodeExpiryMs later at the earliest. */
  #surelyHeardMs = -Infinity;
  #isAlone = false; // whether this node grants to its own calls
  #isHeartbeatUnderWay = false;
  /** Whether a connection broke, or a node of the process lost the server, since the last reply. */
  #isHeartbeatHurried = false;
  /** The end of the last request to the server, for which the next request waits. Never rejects. */
  #lastRequest: Promise<unknown> = Promise.resolve();
  /** Stops the timer of the next heartbeat; undefined before the node has joined. */
  #stopHeartbeat: (() => void) | undefined;
  #hasLeft = false; // whether `leave` or `close` was called: no heartbeat is sent any more
  onBack?: () => void;

  constructor(options: EqualShareOptions) {
    this.#options = options;
    this.#contact = new CoordinatorContact(options.random ?? Math.random);
    if (options.shares > 0)
      this.#fallback = options.openFallback?.(() => !this.#contact.isLost && this.#unreported.size === 0);
  }

  /** Ms since the server may last have heard the node; -Infinity before the node has joined. */
  get silentMs(): number {
    return this.#options.clock.monotonicMs() - this.#maybeHeardMs;
  }

  get isAlone(): boolean {
    return this.#isAlone;
  }

  /** Sends a heartbeat soon: another server may have taken over, and other nodes may wait for this one. */
  hurryHeartbeat(): void {
    if (this.#isHeartbeatHurried || this.#hasLeft || this.#stopHeartbeat === undefined) return;
    this.#isHeartbeatHurried = true;
    this.#setHeartbeat();
  }

  /** Called when there is a connection to the server again: an ask or a join that waits is tried at once. */
  onConnected(): void {
    this.#contact.endPause();
    if (this.#stopHeartbeat === undefined) this.onBack?.();
    else if (this.#isHeartbeatHurried && !this.#isHeartbeatUnderWay && !this.#hasLeft)
      void this.#sendHeartbeat();
  }

  /** Neither begins nor ends a loss: the exchange or the heartbeat that follows does. */
  async join(): Promise<WallMs> {
    const reply = await this.#oneByOne(() => this.#options.coordinator.join());
    if (this.#stopHeartbeat === undefined) {
      this.#fallback?.start();
      this.#setHeartbeat();
    }
    return reply;
  }

  async exchange(asks: readonly LeaseAsk[]): Promise<ExchangeReply> {
    const { clock } = this.#options;
    // If the node can grant while the server is lost, asks do not wait: a heartbeat tries the server.
    if (this.#contact.isLost && this.#canGrant) {
      if (this.#contact.mayTry(clock.monotonicMs()) && !this.#isHeartbeatUnderWay) void this.#sendHeartbeat();
      return this.#grantHere(asks);
    }
    // Read before the request waits for others (`#oneByOne`): calls wait for that time too.
    const queuedMs = clock.monotonicMs();
    try {
      const reply = await this.#oneByOne(async () => {
        await this.#reportUnreported();
        return this.#options.coordinator.exchange(asks.map(withoutLocalPermits));
      });
      this.#onReply(queuedMs);
      for (const [index, ask] of asks.entries()) this.#fallback?.recordReply(ask, reply.replies[index]!);
      return reply;
    } catch (error) {
      // `unknown_node` is a reply: the caller joins again. `closed`: this process has closed the coordinator.
      if (!(error instanceof CoordinatorLost) || error.reason === 'unknown_node' || error.reason === 'closed')
        throw error;
      this.#onLoss(error);
      if (this.#canGrant) return this.#grantHere(asks);
      this.#setAlone(undefined);
      throw error;
    }
  }

  view(scopes: readonly string[], slots: readonly number[] = []): Promise<ScopeView[]> {
    return this.#options.coordinator.view(scopes, slots);
  }

  async leave(): Promise<void> {
    // Stopped before anything is awaited: a heartbeat that waits to be sent would join again.
    this.#stopHeartbeat?.();
    this.#hasLeft = true;
    // If this fails, neither node leaves: the server would take for unused what was granted alone. It counts
    // the grants of both until their lives expire.
    await this.#oneByOne(() => this.#reportUnreported());
    try {
      await this.#fallback?.leave();
    } finally {
      // This node leaves also if the fallback's node could not: each of the two has grants of its own.
      await this.#oneByOne(() => this.#options.coordinator.leave());
    }
  }

  async close(): Promise<void> {
    this.#hasLeft = true;
    this.#stopHeartbeat?.();
    await this.#fallback?.close();
    await this.#options.coordinator.close();
  }

  /** Whether this node may use its share: if the server still serves others, it holds the share back. */
  get #hasShare(): boolean {
    const { shares, nodeExpiryMs, clock } = this.#options;
    const isExpired = clock.monotonicMs() - this.#surelyHeardMs > nodeExpiryMs;
    return shares > 0 && this.silentMs >= SHARE_BEGINS_MS && !isExpired;
  }

  get #canGrant(): boolean {
    return this.#hasShare || this.#fallback?.holdsAny === true;
  }

  /** `reason`: why the node grants to its own calls from now on; undefined if the server does. */
  #setAlone(reason: string | undefined): void {
    const isAlone = reason !== undefined;
    if (isAlone === this.#isAlone) return;
    this.#isAlone = isAlone;
    this.#options.onAlone?.(reason);
  }

  /** Replies to the asks in place of the server, and keeps the replies to report them later. */
  #grantHere(asks: readonly LeaseAsk[]): ExchangeReply {
    this.#setAlone(this.#contact.state.lost?.message);
    const hasShare = this.#hasShare;
    const replies = asks.map((ask) => {
      const shareGrant = hasShare ? this.#grantOfShare(ask) : undefined;
      const reply = replyAlone(ask, shareGrant, this.#fallback?.grant(ask));
      this.#unreported.record(ask, reply);
      return reply;
    });
    return { wallMs: this.#options.clock.wallMs(), replies, isAlone: true };
  }

  /** Reports what the node has granted to its own calls. Must be called before any other ask is sent. */
  async #reportUnreported(): Promise<void> {
    while (this.#unreported.size > 0) {
      const page = this.#unreported.page();
      await this.#options.coordinator.exchange(page);
      // Recorded here, because the next page may fail as not sent, and then `#oneByOne` records nothing.
      this.#maybeHeardMs = this.#options.clock.monotonicMs();
      this.#unreported.reported(page);
    }
  }

  /** Sets the timer of the next heartbeat, in place of the former timer. Each heartbeat sets the next. */
  #setHeartbeat(): void {
    if (this.#hasLeft) return;
    this.#stopHeartbeat?.();
    const { timers = SYSTEM_TIMERS, clock } = this.#options;
    const soonMs = this.#contact.pauseMs(clock.monotonicMs()) || HEARTBEAT_SOON_MS;
    this.#stopHeartbeat = timers.after(this.#isHeartbeatHurried ? soonMs : HEARTBEAT_MS, () => {
      if (!this.#isHeartbeatUnderWay) void this.#sendHeartbeat();
      this.#setHeartbeat();
    });
  }

  #onLoss(error: CoordinatorLost): void {
    this.#contact.recordFailure(error, this.#options.clock.monotonicMs());
    if (this.#isHeartbeatHurried) this.#setHeartbeat();
    else this.hurryHeartbeat();
    this.#options.onLost?.();
  }

  /**
   * Sends a heartbeat. Joins if the server does not know the node, which then reports what it holds
   * (valkey-partition.ts). The next request reports unreported asks.
   */
  async #sendHeartbeat(): Promise<void> {
    const { coordinator, clock } = this.#options;
    this.#isHeartbeatUnderWay = true;
    const queuedMs = clock.monotonicMs();
    try {
      await this.#oneByOne(async () => {
        if (this.#hasLeft) return;
        try {
          if (this.#unreported.size > 0) await this.#reportUnreported();
          else await coordinator.exchange([]);
        } catch (error) {
          if (!(error instanceof CoordinatorLost) || error.reason !== 'unknown_node') throw error;
          await coordinator.join();
        }
      });
      this.#onReply(queuedMs);
    } catch (error) {
      // No caller waits for a heartbeat. The next exchange of the node meets the same failure.
      if (!(error instanceof CoordinatorLost)) throw error;
      this.#onLoss(error);
    } finally {
      this.#isHeartbeatUnderWay = false;
    }
  }

  #onReply(queuedMs: number): void {
    const wasLost = this.#contact.isLost;
    this.#isHeartbeatHurried = false;
    this.#contact.recordReply(queuedMs, this.#options.clock.monotonicMs());
    this.#setAlone(undefined);
    if (wasLost) this.onBack?.();
  }

  /** Sends a request after the former one has ended. Records when the server has, or may have, heard it. */
  #oneByOne<Result>(send: () => Promise<Result>): Promise<Result> {
    const { clock } = this.#options;
    const ended = this.#lastRequest.then(async () => {
      const sentMs = clock.monotonicMs();
      try {
        const result = await send();
        this.#maybeHeardMs = clock.monotonicMs();
        this.#surelyHeardMs = sentMs;
        return result;
      } catch (error) {
        // Before its first reply the node has not joined, and so has no share that could begin.
        if (this.#maybeHeardMs !== Infinity && !wasNotSent(error)) this.#maybeHeardMs = clock.monotonicMs();
        throw error;
      }
    });
    this.#lastRequest = ended.catch(() => undefined);
    return ended;
  }

  /** Takes back the permits of the share that the ask returns, then grants what the share has left. */
  #grantOfShare({ scope, minute }: LeaseAsk): MinuteGrant | undefined {
    if (minute === undefined) return undefined;
    const { clock, shares } = this.#options;
    const limit = Math.floor(minute.limit / shares);
    const returned = permitsOfShare(minute.returned);
    const grants = this.#shareGrants.get(scope) ?? new MinuteBuckets();
    this.#shareGrants.set(scope, grants);
    return grants.reply(THIS_NODE, { ...minute, limit, returned, used: [] }, clock.monotonicMs());
  }
}
