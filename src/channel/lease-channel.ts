/**
 * The port by which a listener or an upstream worker asks the main thread for leases, if limits are shared
 * with other processes. The other end is `serveLeases` in gateway/shared-accounting.ts. The messages of one
 * event-loop turn go as one array (`isBatched` of core/ask-port.ts), and so do the replies. Like each port of
 * the glossary, this one carries _questions_: a LeaseAsk is what one of them asks.
 *
 *     to main     Question<LeaseAsk>    a request waits for a lease
 *                 LowLease              a lease runs low, though no request waits; no reply
 *     from main   AskReply<LeaseEnd>    how the wait of the request ended
 *
 * A Question has the member `ask`, a LowLease the member `low`: by these `serveLeases` tells them apart.
 *
 * Must hold: after `try` the asker takes of the quota again. Another request of the process may have been
 * faster: then the asker asks once more, or rejects its request (test/unit/request/admission-lease.test.ts,
 * test/unit/request/rate-limit.test.ts, test/e2e/shared-quotas.test.ts).
 */
import type { MessagePort } from 'node:worker_threads';
import { AskPort, type Question } from '../core/ask-port.js';
import type { PicoUnits } from '../core/units.js';
import type { RefusedQuota } from '../ledger/quota-rejections.js';

/** `model`: an account's rule for a model. */
type ScopeKind = 'account' | 'key' | 'group' | 'model' | 'upstream';

/** A scope by its index in the ledger. */
export interface LeaseScope {
  readonly kind: ScopeKind;
  readonly index: number;
}

/**
 * What the request could not take. `minute`: a permit. `admission`: a call of each stock of calls, the hold,
 * the tokens, and a permit of a rule for a model; if the call costs nothing (`isFree`), only a call slot and
 * that permit. `upstream`: a permit, a call slot and the tokens, of an upstream. Without `tokens`: none.
 */
export type LeaseNeed =
  | { readonly kind: 'minute' }
  | {
      readonly kind: 'admission';
      readonly hold: PicoUnits;
      readonly tokens?: number;
      readonly isFree?: true;
    }
  | { readonly kind: 'upstream'; readonly hold?: undefined; readonly tokens?: number };

/** A request lacks what `need` names in one of `scopes`. */
export interface LeaseAsk {
  /** All scopes that the request takes from. The main thread adds the groups of the account. */
  readonly scopes: readonly LeaseScope[];
  readonly need: LeaseNeed;
}

/** The reply to a LeaseAsk: how the wait of the request ended. */
export type LeaseEnd =
  /** When the reply was sent, this process had what the request needs. Another request may take it first. */
  | 'try'
  /**
   * The coordinator has too little left of these, and other nodes gave nothing back while the request could
   * wait. Of everything else that the request needs there was enough, but another request may have taken it
   * when this reply arrives. So the rejection names a quota of this list, and not what is short by then.
   */
  | { readonly refused: readonly RefusedQuota[] }
  /** The coordinator has not replied in time: the process was stopped, or overloaded. */
  | 'late'
  /** The coordinator does not reply, too many requests wait already, or the process ends. */
  | 'lost'
  /** The coordinator has lost its data, and grants nothing for at least `lostForMs`. */
  | { readonly lostForMs: number };

/** The quotas that refuse the request; undefined if the wait ended in another way. */
export function refusedBy(end: LeaseEnd): readonly RefusedQuota[] | undefined {
  return typeof end === 'object' && 'refused' in end ? end.refused : undefined;
}

/** The lease of `low` runs low: the main thread asks the coordinator for more. */
export interface LowLease {
  readonly low: LeaseScope;
}

/** One message: all that was sent in one event-loop turn. */
export type LeaseMessages = readonly (Question<LeaseAsk> | LowLease)[];

/**
 * The questions that wait for a reply are at most as many as the open requests: each asks one at a time, and
 * gets its reply within some seconds. `ask` resolves once the request may try again, or cannot have what it
 * needs, and never rejects, because `serveLeases` rejects no question. It knows no withdrawal, so `askWithin`
 * of AskPort is left out.
 */
export type LeaseChannel = Pick<AskPort<LeaseAsk, LeaseEnd, LowLease>, 'ask' | 'send'>;

export function openLeaseChannel(port: MessagePort): LeaseChannel {
  // serveLeases expects arrays.
  return new AskPort(port, { isBatched: true });
}
