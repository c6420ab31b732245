/**
 * Whether a host can follow and change the registry that hosts share; what it says of it in its log, and to operators. Main
 * thread.
 */
import { ProxyError } from '../core/errors.js';
import type { Log } from '../telemetry/log.js';
import { RegistryDiverged } from './registry-fault.js';
import { ValkeyError } from './valkey-client.js';

/** Of the log, while something keeps this host from following. */
const LOG_PERIOD_MS = 60_000;

export type RegistryContactState =
  | { readonly kind: 'following' }
  /** The server cannot be reached, or not be used. */
  | { readonly kind: 'lost'; readonly reason: string }
  /** What this host has is no state of what the server has. */
  | { readonly kind: 'diverged'; readonly reason: string };

export class RegistryContact {
  readonly #log: Log;
  #state: RegistryContactState = { kind: 'lost', reason: 'it has not been asked yet' };
  #loggedAtMs = -Infinity;

  constructor(log: Log) {
    this.#log = log;
  }

  get state(): RegistryContactState {
    return this.#state;
  }

  noteFollowing(): void {
    if (this.#state.kind !== 'following') this.#log.info('accounts and keys are shared with other hosts');
    this.#state = { kind: 'following' };
  }

  noteFailure(error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    const before = this.#state.kind;
    this.#state = { kind: error instanceof RegistryDiverged ? 'diverged' : 'lost', reason };
    const nowMs = performance.now();
    if (before === this.#state.kind && nowMs - this.#loggedAtMs < LOG_PERIOD_MS) return;
    this.#loggedAtMs = nowMs;
    const text =
      'accounts and keys cannot be changed: the registry that hosts share is not to be had; calls go on';
    this.#log[error instanceof ValkeyError ? 'warn' : 'error'](text, { reason });
  }

  /** Of a change that was not made. */
  refusal(): ProxyError {
    const reason = this.#state.kind === 'following' ? 'it is being looked for' : this.#state.reason;
    const message = `Nothing was changed: the registry that hosts share is not to be had (${reason}). Try again.`;
    return new ProxyError('overloaded', 'gateway', message, 1);
  }
}

/** Of a change that may have been made. */
export function unknownFate(): ProxyError {
  const message =
    'It is not known whether this was changed: the connection to the registry that hosts share broke in the midst of it. ' +
    'Look before you try again.';
  return new ProxyError('overloaded', 'gateway', message, 1);
}
