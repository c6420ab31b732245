/**
 * Reads the members of a chat completion for a provider, and sees that none is lost without a word: a member
 * that the provider has no word for is refused with a FieldError, unless it is harmless or the upstream has
 * `drop_unsupported`. Each provider's `write` makes one for each call. Upstream worker.
 */
import { isRecord } from '../core/json.js';
import { FieldError } from './provider.js';

/** Members that do not change what the model says. */
const HARMLESS: ReadonlySet<string> = new Set([
  'model',
  'stream',
  'stream_options',
  'user',
  'safety_identifier',
  'prompt_cache_key',
  'prompt_cache_retention',
  'metadata',
  'store',
  'service_tier',
]);

export class Fields {
  readonly #body: Readonly<Record<string, unknown>>;
  readonly #provider: string;
  readonly #dropUnsupported: boolean;
  readonly #taken = new Set<string>();

  /** `provider`: its name in messages. */
  constructor(body: Readonly<Record<string, unknown>>, provider: string, dropUnsupported: boolean) {
    this.#body = body;
    this.#provider = provider;
    this.#dropUnsupported = dropUnsupported;
  }

  /** The member of that name, which the provider's request then says; undefined if it is absent or null. */
  take(name: string): unknown {
    this.#taken.add(name);
    return this.#body[name] ?? undefined;
  }

  number(name: string): number | undefined {
    const value = this.take(name);
    if (value === undefined || (typeof value === 'number' && Number.isFinite(value))) return value;
    throw new FieldError(name, 'must be a number');
  }

  integer(name: string): number | undefined {
    const value = this.number(name);
    if (value === undefined || Number.isSafeInteger(value)) return value;
    throw new FieldError(name, 'must be an integer');
  }

  string(name: string): string | undefined {
    const value = this.take(name);
    if (value === undefined || typeof value === 'string') return value;
    throw new FieldError(name, 'must be a string');
  }

  boolean(name: string): boolean | undefined {
    const value = this.take(name);
    if (value === undefined || typeof value === 'boolean') return value;
    throw new FieldError(name, 'must be true or false');
  }

  record(name: string): Record<string, unknown> | undefined {
    const value = this.take(name);
    if (value === undefined || isRecord(value)) return value;
    throw new FieldError(name, 'must be an object');
  }

  list(name: string): readonly unknown[] | undefined {
    const value = this.take(name);
    if (value === undefined || Array.isArray(value)) return value;
    throw new FieldError(name, 'must be an array');
  }

  /**
   * What `field` asks for cannot be had from the provider. Returns, and it is left out, if the upstream drops
   * such.
   */
  unsupported(field: string, what = `is not supported by ${this.#provider}`): void {
    if (!this.#dropUnsupported) throw new FieldError(field, what);
  }

  /** Called last: refuses the members that nobody took. A null, an empty list and `false` ask for nothing. */
  finish(): void {
    for (const name in this.#body) {
      if (this.#taken.has(name) || HARMLESS.has(name)) continue;
      const value = this.#body[name];
      if (value === null || value === undefined || value === false) continue;
      if (Array.isArray(value) && value.length === 0) continue;
      this.unsupported(name);
    }
  }
}
