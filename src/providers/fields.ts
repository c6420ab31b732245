/**
 * Gives a provider the members of a chat completion, and refuses each member that nobody took. A member that
 * the provider lacks is refused with a FieldError, unless it is harmless or the upstream has
 * `drop_unsupported`. Each provider's `write` makes one Fields for each call, and so does
 * doors/responses/to-chat.ts. Upstream worker, or counter thread if the body is large.
 *
 * Must hold: `finish` is called once, after every member that the provider has was taken. If it is called
 * earlier, it refuses a member that the provider has; if it is not called, unknown members vanish. `finish`
 * looks at the top level alone: each provider checks deeper members itself. Tests: those of each provider's
 * requests, such as test/unit/providers/gemini/request.test.ts.
 */
import { exactJson } from '../core/exact-json.js';
import { isNestedTooDeeply, isRecord, type Members } from '../core/json.js';
import { BODY_NESTING_MAX } from '../core/limits.js';
import { FieldError } from './provider.js';

/**
 * Members that any provider may leave out: the gateway itself reads `model`, `stream` and `stream_options`,
 * and the others do not change the text of the response.
 */
const HARMLESS: ReadonlySet<string> = new Set([
  ...['model', 'stream', 'stream_options', 'user', 'safety_identifier', 'metadata', 'store', 'service_tier'],
  ...['prompt_cache_key', 'prompt_cache_options', 'prompt_cache_retention'],
]);

/**
 * The arguments of a tool call as an object, as providers want them. `args`: OpenAI's JSON text, at `path`.
 * Some models send an empty text for a tool without parameters. Only exactJsonText may write the object,
 * because exactJson marks its long integers. Throws a FieldError.
 */
export function argumentsOf(args: unknown, path: string): Record<string, unknown> {
  if (args === undefined || args === null || args === '') return {};
  const value = typeof args === 'string' ? exactJson(args) : args;
  if (!isRecord(value)) throw new FieldError(path, 'must be a JSON object');
  if (typeof args === 'string' && isNestedTooDeeply(args, value))
    throw new FieldError(path, `must be nested at most ${BODY_NESTING_MAX} levels deep`);
  return value;
}

/** The member `name` of `holder`, which is at `path`. Throws a FieldError unless it is a string. */
export function stringIn(holder: Members, name: string, path: string): string {
  const value = holder[name];
  if (typeof value !== 'string') throw new FieldError(`${path}.${name}`, 'must be a string');
  return value;
}

/**
 * `take`, and each method with the name of a type, takes a member and returns its value: undefined if the
 * member is absent or null. The methods with the name of a type throw a FieldError for another type.
 */
export class Fields {
  readonly #body: Members;
  readonly #provider: string;
  readonly #dropUnsupported: boolean;
  readonly #taken = new Set<string>();

  /** `provider`: the provider's name in messages of errors. */
  constructor(body: Members, provider: string, dropUnsupported: boolean) {
    this.#body = body;
    this.#provider = provider;
    this.#dropUnsupported = dropUnsupported;
  }

  /** Takes a member of any type. */
  take(name: string): unknown {
    const value = this.#body[name] ?? undefined;
    if (value !== undefined) this.#taken.add(name);
    return value;
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
   * Call if the provider cannot do what the member at the path `field` asks for. In the message `reason`
   * follows the path. Throws a FieldError, or returns if the upstream has `drop_unsupported`: then the caller
   * leaves the member out.
   */
  unsupported(field: string, reason = `is not supported by ${this.#provider}`): void {
    if (!this.#dropUnsupported) throw new FieldError(field, reason);
  }

  /**
   * Call last. Refuses each member that nobody took and that is not harmless, unless its value is null, false
   * or an empty list, which asks for nothing.
   */
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
