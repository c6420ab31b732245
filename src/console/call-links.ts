/**
 * The addresses of the calls behind a number. Pages link what they count to them. Browser
 * (test/e2e/console-calls.test.ts).
 */
import { addressOf } from './browser.js';

/** As `GET /admin/v1/calls` takes them; accounts, groups and keys by id or name, times in Unix seconds. */
export interface CallFilters {
  readonly account?: string;
  /** Of accounts that are in it or below it. */
  readonly group?: string;
  readonly key?: string;
  readonly model?: string;
  readonly upstream?: string;
  /** `500` or `5xx`. */
  readonly status?: string;
  readonly code?: string;
  /** `true` for those with a code. */
  readonly failed?: string;
  readonly from?: string;
  readonly to?: string;
}

export const callsAddress = (filters: CallFilters): string => addressOf('calls', '', { ...filters });

export const callAddress = (requestId: string): string => addressOf('calls', requestId);
