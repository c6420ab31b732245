/**
 * Runs scripts at the server of sharing, in the name of a place (host:slot) in one partition, and frees what
 * ended lives of that place hold. valkey-partition.ts and host-directory.ts make a ValkeyServer. Main thread.
 *
 * Must hold: LUA_PRELUDE (valkey-lua.ts) takes KEYS and ARGV in the order in which `run` sends them
 * (test/unit/sharing/valkey-coordinator.test.ts). Work counts as done only if the script said so: what
 * counts as freed or reported and is not would be lost to all nodes, or granted twice.
 */
import { CoordinatorLost } from './coordinator.js';
import { asLoss, type ValkeyClient } from './valkey-client.js';
import { coordinatorKeys, packed, type SpentRow, unpacked } from './valkey-codec.js';
import type { NodeScript } from './valkey-lua.js';
import { FREE_SCRIPT } from './valkey-scripts.js';

/** Ends the loop of `free`: so many pages of PAGE_SCOPES scopes are more scopes than a process can have. */
const PAGES_MAX = 50_000;

export interface ValkeyServerOptions {
  readonly client: ValkeyClient;
  readonly namespace: string;
  readonly partition: number;
  readonly host: string;
  readonly place: string;
  /** Returns the time to use instead of the server's. Only tests set it. */
  readonly timeInsteadMs?: () => number;
}

export class ValkeyServer {
  readonly keys: ReturnType<typeof coordinatorKeys>;
  readonly #options: ValkeyServerOptions;

  constructor(options: ValkeyServerOptions) {
    this.#options = options;
    this.keys = coordinatorKeys(options.namespace, options.partition);
  }

  /**
   * Runs a script in one round trip. KEYS are the keys of the partition and the place, then two of each
   * scope. `head` and `rows` are packed. `head` gets `timeMs`, which `now_ms` of LUA_PRELUDE takes. Resolves
   * with the unpacked reply, which is not checked; rejects with CoordinatorLost.
   */
  async run<Head extends object, Row, Reply>(
    script: NodeScript<Head, Row, Reply>,
    head: Head,
    scopes: readonly string[] = [],
    rows: readonly Row[] = [],
  ): Promise<Reply> {
    const { client, place, host, timeInsteadMs } = this.#options;
    const { meta, nodes, awaited, heldBy, of } = this.keys;
    const keys = [meta, nodes, awaited, heldBy(place), ...scopes.flatMap((scope) => of(scope))];
    const timeMs = timeInsteadMs?.() ?? 0;
    const argv = [place, host, packed({ ...head, timeMs }), packed(rows)];
    try {
      const reply = await client.run(script, keys, argv, { binary: true });
      // A Buffer, because the call is binary and all these scripts return packed text.
      return unpacked(reply as Buffer) as Reply;
    } catch (error) {
      throw asLoss(error);
    }
  }

  /**
   * As `run`, for a script that replies true when it has done its work, and false if another life has come.
   * Resolves with the reply. Any other reply is not the script's: rejects with CoordinatorLost.
   */
  async carryOut<Head extends object, Row>(
    script: NodeScript<Head, Row, boolean>,
    head: Head,
    scopes: readonly string[] = [],
    rows: readonly Row[] = [],
  ): Promise<boolean> {
    const reply = await this.run(script, head, scopes, rows);
    if (typeof reply !== 'boolean') throw oddReply(reply);
    return reply;
  }

  /**
   * Frees what ended lives of the place hold, and reports what the host has spent of each scope. `firstPage`
   * are the first scopes to free; it may be empty. Resolves with true when nothing is held any more, with
   * false if another life than `incarnation` has come. Rejects with CoordinatorLost.
   */
  async free(
    incarnation: string,
    firstPage: readonly string[],
    spentOf: (scope: string) => SpentRow,
  ): Promise<boolean> {
    let page = firstPage;
    for (let pages = 0; pages < PAGES_MAX; pages++) {
      const rows = page.map((scope) => ({ scope, spent: spentOf(scope) }));
      const nextPage = await this.run(FREE_SCRIPT, { incarnation }, page, rows);
      if (nextPage === false) return false;
      if (!isListOfTexts(nextPage)) throw oddReply(nextPage);
      if (nextPage.length === 0) return true;
      page = nextPage;
    }
    throw new CoordinatorLost('failing', 'leases of an ended life do not end');
  }
}

function isListOfTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string');
}

/** The reply is none of the script's, so it is not known what was done. */
function oddReply(reply: unknown): CoordinatorLost {
  return new CoordinatorLost(
    'failing',
    `the server replied to a script with no reply of it (${typeof reply})`,
  );
}
