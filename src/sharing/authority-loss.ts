/** Failures of the server as the authority's callers know them. Main thread. */
import { AuthorityLost } from './authority.js';
import { ValkeyError, type ValkeyFailure } from './valkey-client.js';

const REASONS = {
  unreachable: 'unreachable',
  offline: 'unreachable',
  late: 'deadline',
  refused: 'failing',
} as const satisfies Record<ValkeyFailure, string>;

/** What is no failure of the server is a bug and stays what it is. */
export function asLoss(error: unknown): unknown {
  if (!(error instanceof ValkeyError)) return error;
  return new AuthorityLost(REASONS[error.code], `the sharing server: ${error.message}`, { cause: error });
}

/** Whether the server cannot have heard of it, now or later. */
export function wasNotSent(error: unknown): boolean {
  return (
    error instanceof AuthorityLost && error.cause instanceof ValkeyError && error.cause.code === 'offline'
  );
}
