/**
 * What a bench starts, and ends whatever comes of it.
 */
import type { Scope } from '../../test/support/mock.js';

/** What `measure` gives, once all that it has started in its scope has ended, last first. */
export async function inScope<Result>(measure: (scope: Scope) => Promise<Result>): Promise<Result> {
  const ends: (() => unknown)[] = [];
  try {
    return await measure({ teardown: (after) => ends.push(after) });
  } finally {
    for (const end of ends.reverse()) await end();
  }
}
