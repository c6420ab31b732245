/**
 * Gives upstreams the names and slots under which they are counted. gateway/gateway-metrics.ts owns the
 * UpstreamNames of a gateway, gateway/settings-records.ts calls `assign` at the start and at each reload, and
 * the metrics read `known` and `current`. Main thread.
 *
 * Must hold (test/unit/telemetry/upstream-names.test.ts):
 * - An upstream keeps its slot over reloads, because workers count in the words of the slot.
 * - Slots are bounded by UPSTREAM_SLOTS_MAX: when all are given, further upstreams share the last one, and an
 *   operator learns that from the log (`logShared`).
 */
import type { UpstreamLimits } from '../core/quotas.js';
import type { UpstreamScopeIndex } from '../core/units.js';
import type { Log } from './log.js';
import { UPSTREAM_SLOTS_MAX } from './metrics-layout.js';

/** An upstream of the settings. */
interface UpstreamSetting {
  readonly model: string;
  /** Host and port, or `echo`; no path, key or query. */
  readonly name: string;
  readonly priority: number;
  readonly weight: number;
  /** Undefined if it has no limits. */
  readonly scope?: UpstreamScopeLimits | undefined;
}

/** The upstreams that share limits, and the limits. */
export interface UpstreamScopeLimits {
  readonly index: UpstreamScopeIndex;
  readonly limits: UpstreamLimits;
}

export interface NamedUpstream extends UpstreamSetting {
  /** The block in which workers count the upstream (metrics-layout.ts). */
  readonly slot: number;
}

/** Returns the key of an upstream in maps: unambiguous, because no model's id and no `name` has a space. */
export const upstreamKeyOf = ({ model, name }: Pick<UpstreamSetting, 'model' | 'name'>): string =>
  `${model} ${name}`;

export class UpstreamNames {
  /** By `upstreamKeyOf`. No slot is ever removed; UPSTREAM_SLOTS_MAX bounds them. */
  readonly #slots = new Map<string, number>();
  /** By slot, also upstreams that are no longer in the settings. Of a shared slot, the one assigned last. */
  readonly #knownUpstreams: NamedUpstream[] = [];
  #currentUpstreams: readonly NamedUpstream[] = [];

  /**
   * Returns all upstreams of new settings with their slots, in the order given. If a model has several
   * upstreams of one name, the second is named `name#2` and so on, by the order of the settings: if a reload
   * swaps them, each goes on with the counters of the other. When all slots are taken, further upstreams
   * share the last.
   */
  assign(upstreams: readonly UpstreamSetting[]): readonly NamedUpstream[] {
    const timesNamed = new Map<string, number>();
    this.#currentUpstreams = upstreams.map((setting) => {
      const key = upstreamKeyOf(setting);
      const count = (timesNamed.get(key) ?? 0) + 1;
      timesNamed.set(key, count);
      const name = count === 1 ? setting.name : `${setting.name}#${count}`;
      const slot = this.#slotOf(upstreamKeyOf({ model: setting.model, name }));
      const upstream = { ...setting, name, slot };
      this.#knownUpstreams[upstream.slot] = upstream;
      return upstream;
    });
    return this.#currentUpstreams;
  }

  /** Upstreams of the present settings. */
  get current(): readonly NamedUpstream[] {
    return this.#currentUpstreams;
  }

  /**
   * Upstreams of all settings since the start, by slot. The counts of a shared slot have the one name here.
   */
  get known(): readonly NamedUpstream[] {
    return this.#knownUpstreams;
  }

  /**
   * Logs how many of the present upstreams have no slot of their own, if any. Call it when settings have come
   * into force: at the start and at each reload.
   */
  logShared(log: Log): void {
    const shared = this.#currentUpstreams.filter((upstream) => !this.#slots.has(upstreamKeyOf(upstream)));
    if (shared.length === 0) return;
    log.warn(
      'the metrics have no room for more upstreams: those that come last are counted together, under the name of one; a restart forgets those that are gone',
      { upstreams_max: UPSTREAM_SLOTS_MAX, counted_together: shared.length + 1 },
    );
  }

  /** Returns the slot that has the key. If it has none yet, gives it the next free slot, or else the last. */
  #slotOf(key: string): number {
    const existingSlot = this.#slots.get(key);
    if (existingSlot !== undefined) return existingSlot;
    const slot = this.#slots.size;
    if (slot >= UPSTREAM_SLOTS_MAX) return UPSTREAM_SLOTS_MAX - 1;
    this.#slots.set(key, slot);
    return slot;
  }
}
