/**
 * What of a subject is for calls alone, for a while, because they lacked it: each resource by itself, so that an account at the limit
 * of its minute has still something of its day and its money set aside. Main thread.
 */
import type { LeaseAnswer, LeaseAsk } from './authority.js';

/** What was given back for others stays theirs for so long. */
const RELEASED_MS = 2_000;

export const RESOURCES = ['minute', 'day', 'slots', 'money'] as const;
export type Resource = (typeof RESOURCES)[number];

export class Releases {
  readonly #untilMs: Record<Resource, number> = { minute: 0, day: 0, slots: 0, money: 0 };

  /** Calls asked the authority, which answered so. */
  note(ask: LeaseAsk, answer: LeaseAnswer, nowMs: number): void {
    for (const resource of RESOURCES) {
      const most = ask[resource]?.most ?? 0;
      const granted = answer[resource]?.granted ?? 0;
      if (most > 0 && granted <= 0) this.#untilMs[resource] = nowMs + RELEASED_MS;
    }
  }

  has(resource: Resource, nowMs: number): boolean {
    return nowMs < this.#untilMs[resource];
  }
}
