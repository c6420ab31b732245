/**
 * Runs scripts at the server of sharing, in the name of a place (host:slot) in one partition, and frees what
 * ended lives of that place hold. valkey-partition.ts and host-directory.ts use it. Main thread.
 *
 * Must hold: scripts read KEYS and ARGV in the order in which `run` sends them, as valkey-lua.ts describes
 * them (test/unit/sharing/valkey-coordinator.test.ts).
 */
import { CoordinatorLost, unknownNode } from './coordinator.js';
import { asLoss, type ValkeyClient, type ValkeyScript } from './valkey-client.js';
import { coordinatorKeys, packed, unpacked } from './valkey-codec.js';
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

  /** The time that scripts use; 0 stands for the server's own. */
  get timeInsteadMs(): number {
    return this.#options.timeInsteadMs?.() ?? 0;
  }

  /**
   * Runs a script in one round trip. KEYS are the keys of the partition and the place, then two of each
   * scope. `args` and `rows` become ARGV[3] and ARGV[4], each packed into one argument; the comment of the
   * script says what is in them. Resolves with the unpacked reply; rejects with CoordinatorLost.
   */
  async run(
    script: ValkeyScript,
    args: readonly unknown[],
    scopes: readonly string[] = [],
    rows: readonly unknown[] = [],
  ): Promise<unknown> {
    const { client, place, host } = this.#options;
    const { meta, nodes, awaited, heldBy, of } = this.keys;
    const keys = [meta, nodes, awaited, heldBy(place), ...scopes.flatMap((scope) => of(scope))];
    const argv = [place, host, packed(args), packed(rows)];
    try {
      const reply = await client.run(script, keys, argv, { binary: true });
      // A Buffer, because the call is binary and all these scripts return packed text.
      return unpacked(reply as Buffer);
    } catch (error) {
      throw asLoss(error);
    }
  }

  /**
   * Frees what ended lives of the place hold, and reports what the host has spent of each scope. `spentOf`
   * returns that as [high, low, version]; false if the host has spent nothing, true if its record is damaged.
   * `firstPage` are the first scopes to free; it may be empty. Resolves with true when nothing is held any
   * more, with false if another life than `incarnation` has come. Rejects with CoordinatorLost.
   */
  async free(
    incarnation: string,
    firstPage: readonly string[],
    spentOf: (scope: string) => readonly number[] | boolean,
  ): Promise<boolean> {
    let page = firstPage;
    for (let pages = 0; pages < PAGES_MAX; pages++) {
      const rows = page.map((scope) => [scope, spentOf(scope)]);
      const nextPage = await this.run(FREE_SCRIPT, [incarnation, this.timeInsteadMs], page, rows);
      if (nextPage === false) return false;
      if (!Array.isArray(nextPage) || nextPage.length === 0) return true;
      page = nextPage as string[];
    }
    throw new CoordinatorLost('failing', 'leases of an ended life do not end');
  }
}

/**
 * The error for a `status` other than `ok` of EXCHANGE_SCRIPT, whose comment lists them. `waitMs` is how long
 * a quarantine still lasts; `awaited` are some of the places that the server waits for.
 */
export function lossOf(status: string, waitMs = 0, awaited: readonly string[] = []): CoordinatorLost {
  const seconds = Math.ceil(waitMs / 1_000);
  const missing = `${awaited.join(', ')} and maybe others have not`;
  switch (status) {
    case 'unknown':
      return unknownNode();
    case 'report':
    case 'quarantine':
      return new CoordinatorLost(
        'quarantine',
        `the server may have lost data; nothing is lent for ${seconds} s, and until all hosts have reported` +
          (awaited.length === 0 ? '' : `: ${missing}`),
        { waitMs },
      );
    case 'check':
      return new CoordinatorLost(
        'checking',
        'the server is another one than before, and lends nothing until all hosts have found that it lost ' +
          `nothing, for ${seconds} s at most: ${missing}`,
      );
    case 'new':
      return new CoordinatorLost(
        'checking',
        'this host is new to the server, and is lent nothing until another one was heard',
      );
    case 'aged':
      return new CoordinatorLost('quarantine', "the server's clock was set forward");
    default:
      return new CoordinatorLost('failing', `the server refused an exchange: ${status}`);
  }
}
