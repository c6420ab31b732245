/**
 * Which lives of nodes the lease file knows: each has a number, which no other life gets, so that what an ended one held
 * is told from what the living hold without looking for it. Main thread.
 */
import { Type, type Static } from 'typebox';
import { Check } from 'typebox/value';
import { isRunning } from '../store/process-identity.js';
import type { NodeIdentity } from './authority.js';
import type { LeaseFile } from './lease-file.js';

const LIVES = 'lives';

/** A look at a process costs some 20 µs; a dead one's leases are free this long after its end. */
const LOOK_PERIOD_MS = 200;

const NodeRow = Type.Object({
  life: Type.Integer({ minimum: 1 }),
  incarnation: Type.String(),
  /** Of the process, see store/process-identity.ts. */
  process: Type.String(),
});

type NodeRow = Readonly<Static<typeof NodeRow>>;

export class LeaseNodes {
  readonly #file: Pick<LeaseFile, 'nodes' | 'meta'>;
  /** Lives that are known; as of the last `look`. */
  readonly #living = new Set<string>();
  #processesLookedAtMs = -Infinity;

  constructor(file: Pick<LeaseFile, 'nodes' | 'meta'>) {
    this.#file = file;
  }

  /** In a transaction: the life takes its place, where it has not got it yet; returns its number. */
  join(node: NodeIdentity, process: string): number {
    const known = this.lifeOf(node);
    if (known !== undefined) return known;
    const lives = this.#file.meta.get(LIVES);
    const life = (typeof lives === 'number' ? lives : 0) + 1;
    this.#file.meta.putSync(LIVES, life);
    const row: NodeRow = { life, incarnation: node.incarnation, process };
    this.#file.nodes.putSync(placeOf(node), row);
    return life;
  }

  /** In a transaction. */
  leave(node: NodeIdentity): void {
    this.#file.nodes.removeSync(placeOf(node));
  }

  /** The number of the node's life; undefined where it is not the one that is known. */
  lifeOf(node: NodeIdentity): number | undefined {
    const row = this.#file.nodes.get(placeOf(node));
    return Check(NodeRow, row) && row.incarnation === node.incarnation ? row.life : undefined;
  }

  /** In a transaction: who lives now; now and then without those whose process has ended. */
  look(nowMs: number): void {
    const looksAtProcesses = nowMs - this.#processesLookedAtMs >= LOOK_PERIOD_MS;
    if (looksAtProcesses) this.#processesLookedAtMs = nowMs;
    this.#living.clear();
    for (const { key: place, value: row } of Array.from(this.#file.nodes.getRange())) {
      if (Check(NodeRow, row) && (!looksAtProcesses || isRunning(row.process)))
        this.#living.add(String(row.life));
      else this.#file.nodes.removeSync(place);
    }
  }

  /** As of the last `look`. */
  isAlive(life: string): boolean {
    return this.#living.has(life);
  }
}

function placeOf({ host, slot }: NodeIdentity): string {
  return `${host}:${slot}`;
}
