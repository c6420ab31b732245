/**
 * One call and its response: the object that intake.ts, delivery.ts and replay.ts share. What a phase finds
 * out for later phases is in CallContext, which requests that are no calls have too; what is recorded of the
 * call is in RecordedCall. Here are the response object of µWebSockets.js, and what must be given back.
 * listener-server.ts makes one for each call. Intake sets its fields, unless a comment names another setter.
 * Listener thread.
 *
 *     Intake ───────────→ Delivery ──→ finish(outcome)
 *       │  └─→ Replay ───────────────────↗
 *       └── rejected, or the client left ↗
 *
 * Must hold: `finish` is called exactly once on every path. It gives back the memory of body and response,
 * and counts and logs the call; a call that is not finished keeps a stopping gateway waiting.
 */
import type { HttpResponse } from 'uWebSockets.js';
import { invariant } from '../core/errors.js';
import type { AccountIndex } from '../core/units.js';
import type { Door } from '../doors/door.js';
import type { Outcome } from '../telemetry/metrics-layout.js';
import type { GatheredContents } from './call-contents.js';
import type { IntakeContext, Swept } from './context.js';
import type { StorableCall } from './collected-response.js';
import type { KeyedCall } from './idempotency.js';
import type { KnownRequest } from './known-requests.js';
import { RecordedCall } from './recorded-call.js';
import type { CachedCall } from './response-cache.js';

export class ChatExchange extends RecordedCall {
  readonly res: HttpResponse;
  /** Whether `finish` was called. */
  isOver = false;
  /** The header `anthropic-beta`; may be empty. */
  betas = '';
  /** Undefined if the request has no Idempotency-Key. */
  keyed: KeyedCall | undefined = undefined;
  /** Set by `lookUp` if the response is to be cached. A call with an Idempotency-Key has none. */
  cached: CachedCall | undefined = undefined;
  /** The body's bytes as text, or empty. KnownRequests sets this field and the next. */
  bodyText = '';
  /** The entry of KnownRequests that has the same body. */
  known: KnownRequest | undefined = undefined;
  /** Undefined if the contents of the call are not kept, and after `finish`. */
  contents: GatheredContents | undefined = undefined;
  /** How many bytes of the body count toward the memory budget of bodies. */
  bodyBytes = 0;
  /** Whether the body comes in chunks: then the connection ends with the response (read-body.ts says why). */
  readonly isLastRequest: boolean;
  #sweepSlot: number | undefined = undefined;

  constructor(
    res: HttpResponse,
    requestId: string,
    requestNumber: number,
    corsLines: string,
    isLastRequest: boolean,
    listener: IntakeContext,
    door?: Door,
  ) {
    super(requestId, requestNumber, corsLines, listener, door);
    this.res = res;
    this.isLastRequest = isLastRequest;
    listener.connections.onCallBegun();
  }

  get endsConnection(): boolean {
    return this.isLastRequest || this.listener.connections.endsConnections;
  }

  /** Available after `authenticate`. */
  get account(): AccountIndex {
    return this.knownCaller.account;
  }

  /** Collects the response, if it is to be stored or cached. Never both (`cached`). */
  get storable(): StorableCall | undefined {
    return this.keyed ?? this.cached;
  }

  /** The gateway no longer needs the body: gives its bytes back to the budget. Idempotent. */
  giveBackBody(): void {
    if (this.bodyBytes === 0 || this.caller === undefined) return;
    this.listener.bodies.giveBack(this.caller.account, this.bodyBytes);
    this.bodyBytes = 0;
  }

  /** Calls `swept` about once a second from now on, until `stopSweep`. One at a time, or it throws. */
  startSweep(swept: Swept): void {
    invariant(!this.isOver && this.#sweepSlot === undefined, 'a call has one sweep until it is over');
    this.#sweepSlot = this.listener.sweeps.add(swept);
  }

  /** Idempotent; `finish` calls it too. */
  stopSweep(): void {
    if (this.#sweepSlot === undefined) return;
    this.listener.sweeps.remove(this.#sweepSlot);
    this.#sweepSlot = undefined;
  }

  /** Called once, as the last: after `charged`, `addServingAttempt` and `reversed`, if these are called. */
  finish(outcome: Outcome): void {
    invariant(!this.isOver, 'an exchange ends once');
    this.isOver = true;
    this.giveBackBody();
    this.storable?.giveUp();
    if (this.hit !== undefined) this.listener.cache.endSending(this.hit.bytes);
    this.stopSweep();
    this.report(outcome);
    if (this.contents !== undefined) this.#endContents(this.contents, outcome);
    this.listener.connections.onCallEnded(this.requestNumber);
  }

  #endContents(contents: GatheredContents, outcome: Outcome): void {
    const { sentError, door, requestId } = this;
    if (sentError !== undefined && !contents.hasResponse)
      contents.addResponse(Buffer.from(door.errors.body(sentError, requestId)));
    this.listener.contents.end(contents, requestId, outcome);
    this.contents = undefined;
  }
}
