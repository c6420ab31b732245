/**
 * A place of a host, as the server knows it in one partition: runs scripts in its name, and frees what lives of it that have ended
 * still hold. Main thread.
 */
import { AuthorityLost, type HostSpent } from './authority.js';
import { asLoss } from './authority-loss.js';
import type { ValkeyClient, ValkeyScript } from './valkey-client.js';
import { packed, unpacked, versioned } from './valkey-codec.js';
import { authorityKeys, type AuthorityKeys } from './valkey-keys.js';
import { VOID_SCRIPT } from './valkey-node-scripts.js';

/** Pages end: so many of 500 are more subjects than a process can have. */
const PAGES_MAX = 50_000;

export interface ValkeyPlaceOptions {
  readonly client: ValkeyClient;
  readonly namespace: string;
  readonly partition: number;
  readonly host: string;
  readonly place: string;
  /** Counts in place of the server's time; other than 0 in tests alone. */
  readonly timeInsteadMs: () => number;
}

export class ValkeyPlace {
  readonly keys: AuthorityKeys;
  readonly #options: ValkeyPlaceOptions;

  constructor(options: ValkeyPlaceOptions) {
    this.#options = options;
    this.keys = authorityKeys(options.namespace, options.partition);
  }

  /** With the keys of the partition and of the place, then the two of each subject. One round trip. Rejects with AuthorityLost. */
  run(
    script: ValkeyScript,
    words: readonly unknown[],
    subjects: readonly string[] = [],
    rows: readonly unknown[] = [],
  ): Promise<unknown> {
    const { meta, nodes, awaited, heldBy, of } = this.keys;
    const common = [meta, nodes, awaited, heldBy(this.#options.place)];
    return this.call(script, [...common, ...subjects.flatMap((subject) => of(subject))], words, rows);
  }

  async call(
    script: ValkeyScript,
    keys: readonly string[],
    words: readonly unknown[],
    rows: readonly unknown[] = [],
  ): Promise<unknown> {
    const { client, place, host } = this.#options;
    try {
      const reply = await client.run(script, keys, [place, host, packed(words), packed(rows)], {
        binary: true,
      });
      return unpacked(reply as Buffer);
    } catch (error) {
      throw asLoss(error);
    }
  }

  /**
   * Page by page, `first` being one: what the host has spent is told with it, as far as that is known. False where another life
   * than `incarnation` has come. Rejects with AuthorityLost.
   */
  async free(
    incarnation: string,
    first: readonly string[],
    spentOf: (subject: string) => HostSpent | undefined,
  ): Promise<boolean> {
    let page = first;
    for (let pages = 0; pages < PAGES_MAX; pages++) {
      const rows = page.map((subject) => [subject, versioned(spentOf(subject))]);
      const next = await this.run(VOID_SCRIPT, [incarnation, this.#options.timeInsteadMs()], page, rows);
      if (next === false) return false;
      if (!Array.isArray(next) || next.length === 0) return true;
      page = next as string[];
    }
    throw new AuthorityLost('failing', 'leases of an ended life do not end');
  }
}
