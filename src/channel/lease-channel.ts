/**
 * `LeaseChannel` is a listener's end of the port to the main thread on which it asks for leases, if limits
 * are shared with other processes. The other end is `serveLeases` in sharing/lease-manager.ts, which imports
 * the types of the messages from here. All that the listener sends in one event-loop turn goes as one array
 * (see AskPort), and so do the replies.
 *
 *     listener → main   Question<LeaseAsk>    a request waits for a lease
 *                       LowLease              a lease runs low; no reply
 *     main → listener   AskReply<LeaseEnd>    how the wait of that request ended
 *
 * Tests: test/unit/sharing/lease-manager.test.ts (the other end),
 * test/unit/upstream/upstream-quotas.test.ts.
 */
import type { MessagePort } from 'node:worker_threads';
import { AskPort, type Question } from '../core/ask-port.js';
import type { PicoUnits } from '../core/units.js';

/** `model`: an account's rule for a model. */
export type ScopeKind = 'account' | 'key' | 'group' | 'model' | 'upstream';

/** A scope by its index in the ledger. */
export interface LeaseScope {
  readonly kind: ScopeKind;
  readonly index: number;
}

/**
 * What the request could not take: a permit; what admission takes, a call of each stock of calls, a hold and
 * tokens, and of a rule for a model a permit too; or all that, of an upstream.
 */
export type LeaseNeed =
  | { readonly kind: 'minute' }
  | { readonly kind: 'admission'; readonly hold: PicoUnits; readonly tokens?: number }
  | { readonly kind: 'upstream'; readonly hold?: undefined; readonly tokens?: number };

/** A request lacks what `need` names, of one of these scopes. */
export interface LeaseAsk {
  /** All from which it takes, but for the groups of the account, which the main thread adds. */
  readonly scopes: readonly LeaseScope[];
  readonly need: LeaseNeed;
}

/** The reply to a LeaseAsk: how the wait of the request ended. */
export type LeaseEnd =
  /** This process held what the request needs when the reply was sent. Another request may take it first. */
  | 'try'
  /** The coordinator has none left. Other nodes hold none, or gave none back while the request could wait. */
  | 'refused'
  /** The coordinator has not said in time whether it has any: the process was stopped, or overloaded. */
  | 'late'
  /** The coordinator does not reply, too many requests wait already, or the process ends. */
  | 'lost'
  /** The coordinator has lost its data, and grants nothing for so long at least. */
  | { readonly lostForMs: number };

/** A lease of this scope runs low. */
type LowLease = LeaseScope;

/** One message: all that the listener sent in one event-loop turn. */
export type LeaseMessages = readonly (Question<LeaseAsk> | LowLease)[];

/**
 * The questions that wait for a reply are at most as many as the open requests: each asks one at a time, and
 * gets its reply within some seconds.
 */
export class LeaseChannel {
  readonly #asks: AskPort<LeaseAsk, LeaseEnd, LowLease>;

  constructor(port: MessagePort) {
    // A message is an array of what one turn of the event loop sent: serveLeases expects that.
    this.#asks = new AskPort(port, { inTurns: true });
  }

  /**
   * Waits until the request can take what it needs, or cannot have it. After `try` the caller takes it again,
   * which may fail again. `scopes` are all that have limits. Never rejects. Rate limiting, admission and
   * upstream workers call it.
   */
  ask(scopes: readonly LeaseScope[], need: LeaseNeed): Promise<LeaseEnd> {
    return this.#asks.ask({ scopes, need });
  }

  /** Has the main thread refill the lease; nothing waits for it. The ledger calls it. */
  low(kind: ScopeKind, index: number): void {
    this.#asks.tell({ kind, index });
  }
}
