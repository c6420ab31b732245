/**
 * Records whether this host can follow and change the registry that hosts share: RegistryContact has this
 * state, and writes to the gateway's event log when it changes. Also makes the errors and rejections of
 * changes that fail. `appendOnce` appends a change to the server's log of changes once, also if the
 * connection breaks. registry-log.ts uses all; registry-reseed.ts throws the two errors too. Main thread.
 *
 * Must hold: a change that may have been made is never reported as not made
 * (test/unit/sharing/registry-contact.registry-append.test.ts). Further test: registry-contact.test.ts.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { errorText, ProxyError } from '../core/errors.js';
import type { RegistryPosition, RegistryRow } from '../store/registry-copy.js';
import type { Log } from '../telemetry/log.js';
import type { RegistryServer } from './registry-server.js';
import { ValkeyError } from './valkey-client.js';

/** An expected error: this host's copy is neither the shared registry nor an earlier state of it. */
export class RegistryDiverged extends Error {
  readonly code = 'registry_diverged';

  constructor(reason: string) {
    super(
      `${reason} This host's copy was not changed. To have this host take over the shared accounts and keys, ` +
        'start it on an empty data directory; what it alone has must be created anew.',
    );
    this.name = 'RegistryDiverged';
  }
}

/** Another process has changed the store, or another host the registry, meanwhile: read both again. */
export class Superseded extends Error {}

/** After how many seconds a client may send again a change that was not made. */
export const RETRY_AFTER_SECONDS = 1;
/** The least time from one log entry about the same kind of failure to the next. */
const LOG_PERIOD_MS = 60_000;

export type RegistryContactState =
  | { readonly kind: 'following' }
  /** The server cannot be reached or used. */
  | { readonly kind: 'lost'; readonly reason: string }
  /** This host's copy is no state of the server's registry. */
  | { readonly kind: 'diverged'; readonly reason: string };

export class RegistryContact {
  readonly #log: Log;
  #state: RegistryContactState = { kind: 'lost', reason: 'it has not been asked yet' };
  #loggedAtMs = -Infinity; // when a failure was last logged (monotonic); -Infinity before the first

  constructor(log: Log) {
    this.#log = log;
  }

  get state(): RegistryContactState {
    return this.#state;
  }

  recordFollowing(): void {
    if (this.#state.kind !== 'following') this.#log.info('accounts and keys are shared with other hosts');
    this.#state = { kind: 'following' };
  }

  recordFailure(error: unknown): void {
    const reason = errorText(error);
    const kindBefore = this.#state.kind;
    this.#state = { kind: error instanceof RegistryDiverged ? 'diverged' : 'lost', reason };
    const nowMs = performance.now();
    if (kindBefore === this.#state.kind && nowMs - this.#loggedAtMs < LOG_PERIOD_MS) return;
    this.#loggedAtMs = nowMs;
    // True at a start too, when no calls are served yet.
    const message =
      "accounts and keys cannot be changed: the registry that hosts share is not available; calls need only this host's copy";
    // A server that is lost mostly comes back by itself. Any other error needs an operator.
    this.#log[error instanceof ValkeyError ? 'warn' : 'error'](message, { reason });
  }

  /**
   * The rejection of a change that was not made. While `following`, only a gateway that stops rejects: it
   * records no failures (`#recordFailure` of registry-log.ts).
   */
  rejection(): ProxyError {
    const reason = this.#state.kind === 'following' ? 'this gateway is stopping' : this.#state.reason;
    const message = `Nothing was changed: the registry that hosts share is not available (${reason}).`;
    // Trying again does not help before an operator has decided, so no Retry-After says that it would.
    if (this.#state.kind === 'diverged') return new ProxyError('overloaded', 'gateway', message);
    return new ProxyError('overloaded', 'gateway', `${message} Try again.`, RETRY_AFTER_SECONDS);
  }
}

/**
 * The error that ends the start of a host without a copy of the registry, of the error that kept it from the
 * server's: a ValkeyError with advice, or any other error as it is. An operator sees its text last.
 */
export function joinFailure(error: unknown): unknown {
  if (!(error instanceof ValkeyError)) return error;
  return new ValkeyError(
    error.code,
    `This host has no accounts and keys yet, and the server of sharing gives it none: ${error.message}. ` +
      'See that the server runs and that the settings of sharing (url, username, password) fit it, then start again.',
  );
}

/** The rejection of a change that may have been made: no 503, after which clients repeat it by themselves. */
export function unknownFate(): ProxyError {
  const message =
    'It is not known whether this was changed: the registry that hosts share was lost in the midst of it. ' +
    'Look before you try again.';
  return new ProxyError('conflict', 'gateway', message);
}

/** The rejection of a change that was made, but is not in this host's store, for example on a full disk. */
export function madeElsewhere(error: unknown): ProxyError {
  const message =
    'The change is made, and in force on the other hosts. This host cannot write it to its store: ' +
    `${errorText(error)}. Do not make it again: this host follows once it can.`;
  return new ProxyError('conflict', 'gateway', message);
}

/**
 * How often a change is sent while it is not known whether it was made. The change names its position in the
 * log, so it is made once.
 */
const SENDS_MAX = 3;
/** The pause before it is sent again. */
const RETRY_MS = 500;

/**
 * Appends the change `id` after `position`. Returns false if another change came first, or if the server has
 * another registry. Rejects with ValkeyError: `refused` if the change was not made, any other code if nobody
 * knows.
 */
export async function appendOnce(
  server: Pick<RegistryServer, 'append' | 'pull'>,
  position: RegistryPosition,
  id: string,
  rows: readonly RegistryRow[],
): Promise<boolean> {
  /** Why nobody knows whether an earlier sending was carried out; undefined for the first sending. */
  let earlierFailure: ValkeyError | undefined;
  for (let sends = 1; ; sends++) {
    try {
      const reply = await server.append(position, id, rows);
      if (reply === 'done' || earlierFailure === undefined) return reply === 'done';
      // The change that came first may be an earlier sending of this one.
      const registry = await server.pull(position);
      const nextChange = registry?.changes[0];
      if (nextChange?.id === id) return true;
      if (nextChange?.version === position.version + 1) return false;
      // The server has another epoch, of which `pull` returns no changes, or an older state. So it does not
      // tell what became of the earlier sending, and the change is sent again.
    } catch (error) {
      if (!(error instanceof ValkeyError)) throw error;
      // `refused` tells of this sending alone, and leaves an earlier one in doubt.
      if (earlierFailure === undefined || error.code !== 'refused') earlierFailure = error;
    }
    if (earlierFailure.code === 'refused' || sends >= SENDS_MAX) throw earlierFailure;
    await pause(RETRY_MS);
  }
}
