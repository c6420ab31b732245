/**
 * Runs scripts at the server of sharing, in the name of a place (host:slot) in one partition, and frees what
 * ended lives of that place hold: valkey-partition.ts and host-directory.ts call ValkeyServer. ServerClock
 * estimates what the server's clock shows, for valkey-partition.ts. Main thread.
 *
 * Must hold: scripts read KEYS and ARGV in the order in which `run` sends them, as valkey-lua.ts describes
 * them (test/unit/sharing/valkey-coordinator.test.ts).
 */
import { CoordinatorLost, unknownNode } from './coordinator.js';
import { asLoss, type ValkeyClient, type ValkeyScript } from './valkey-client.js';
import { coordinatorKeys, packed, type SpentRow, unpacked } from './valkey-codec.js';
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
      const rows = page.map((scope) => [scope, spentOf(scope)]);
      const nextPage = await this.run(FREE_SCRIPT, [incarnation, this.timeInsteadMs], page, rows);
      if (nextPage === false) return false;
      if (!Array.isArray(nextPage) || nextPage.length === 0) return true;
      page = nextPage as string[];
    }
    throw new CoordinatorLost('failing', 'leases of an ended life do not end');
  }
}

/** By which part of a time two clocks may drift apart in it: each by half a thousandth. */
const CLOCK_DRIFT = 0.001;
/** If two clocks differ by more than their drift and this, the server's was set. */
const CLOCK_STEP_MS_MIN = 100;
/**
 * The greatest age at which a reading of the server's clock is used. A server that was away for longer gets
 * no estimate of the former clock, and so its check ends as if data were lost (valkey-marks.ts).
 */
const CLOCK_ESTIMATE_MS_MAX = 600_000;

/** The server's clock showed `serverMs` at some moment of a round trip. The other two times are monotonic. */
interface ClockReading {
  readonly serverMs: number;
  readonly sentMs: number;
  readonly receivedMs: number;
}

/** Estimates what the server's clock shows, from its time in the last exchange that was carried out. */
export class ServerClock {
  #reading: ClockReading | undefined;

  record(reading: ClockReading): void {
    this.#reading = reading;
  }

  /** Called after a loss of data: then the server's clock may go on from another time. */
  forget(): void {
    this.#reading = undefined;
  }

  /** The least that the server's clock can show at `monotonicMs`, whatever the drift; 0 if not known. */
  leastAt(monotonicMs: number): number {
    const { serverMs = 0, receivedMs = -Infinity } = this.#reading ?? {};
    const sinceMs = monotonicMs - receivedMs;
    return sinceMs < CLOCK_ESTIMATE_MS_MAX ? Math.floor(serverMs + sinceMs * (1 - CLOCK_DRIFT)) : 0;
  }

  /**
   * Whether the clock was set forward since the reading on record, by this one. False if there is none, or
   * one that is too old for `leastAt`.
   */
  wasSetForward({ serverMs, sentMs, receivedMs }: ClockReading): boolean {
    if (this.#reading === undefined) return false;
    const sinceMs = sentMs - this.#reading.receivedMs;
    if (sinceMs >= CLOCK_ESTIMATE_MS_MAX) return false;
    // `leastAt` took this off. The clocks may have drifted as far the other way.
    const driftMs = 2 * CLOCK_DRIFT * sinceMs;
    // So much may have passed since the least time: the clock was read at some moment of each round trip.
    const passedMs = receivedMs - sentMs + this.#reading.receivedMs - this.#reading.sentMs;
    return serverMs - this.leastAt(sentMs) > passedMs + driftMs + CLOCK_STEP_MS_MIN;
  }
}

/** The statuses of EXCHANGE_SCRIPT, whose comment explains them, by which it carried nothing out. */
export type RefusedStatus = 'unknown' | 'old' | 'aged' | 'report' | 'quarantine' | 'check' | 'new';

/**
 * The error for a refused exchange. `waitMs` is how long a quarantine still lasts; `awaited` are some of the
 * places that the server waits for.
 */
export function lossOf(status: RefusedStatus, waitMs = 0, awaited: readonly string[] = []): CoordinatorLost {
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
    case 'old':
      return new CoordinatorLost('failing', `the server refused an exchange: ${status}`);
  }
}
