/**
 * Gives every upstream of every model a slot for its counters and a name for their labels, for the life of the process:
 * the same again when settings are read anew. Main thread.
 */
import { UPSTREAM_SLOTS_MAX } from './metrics-layout.js';

/** An upstream as the settings have it. */
export interface UpstreamSetting {
  readonly model: string;
  /** Host and port, or `echo`: without path, key or query. */
  readonly name: string;
  readonly priority: number;
  readonly weight: number;
}

export interface NamedUpstream extends UpstreamSetting {
  readonly slot: number;
}

export class UpstreamNames {
  /** By model and name; never smaller, bounded by the slots. */
  readonly #slots = new Map<string, number>();
  /** By slot, also those that are in the settings no more. */
  readonly #known: NamedUpstream[] = [];
  #current: readonly NamedUpstream[] = [];

  /**
   * All upstreams of new settings, with their slots, in the order given. Those of one model that have the same name are
   * told apart by `#2`, `#3`, …. What comes when all slots are taken shares the last, whose counters then are of several.
   */
  assign(settings: readonly UpstreamSetting[]): readonly NamedUpstream[] {
    const seen = new Map<string, number>();
    this.#current = settings.map((setting) => {
      const base = `${setting.model} ${setting.name}`;
      const count = (seen.get(base) ?? 0) + 1;
      seen.set(base, count);
      const name = count === 1 ? setting.name : `${setting.name}#${count}`;
      const upstream = { ...setting, name, slot: this.#slotOf(`${setting.model} ${name}`) };
      this.#known[upstream.slot] = upstream;
      return upstream;
    });
    return this.#current;
  }

  /** Of the present settings. */
  get current(): readonly NamedUpstream[] {
    return this.#current;
  }

  /** Of all settings that there were. */
  get known(): readonly NamedUpstream[] {
    return this.#known;
  }

  #slotOf(key: string): number {
    const known = this.#slots.get(key);
    if (known !== undefined) return known;
    const slot = this.#slots.size;
    if (slot >= UPSTREAM_SLOTS_MAX) return UPSTREAM_SLOTS_MAX - 1;
    this.#slots.set(key, slot);
    return slot;
  }
}
