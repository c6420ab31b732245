/**
 * Gives a provider the members of a chat completion, and then rejects each member that the provider has not
 * taken, by a FieldError, unless the member is harmless or the upstream has `drop_unsupported`. Each
 * provider's `write` calls `takingAll` for each call, and so does doors/responses/to-chat.ts. The other
 * functions read what is within a member, such as one tool. Upstream worker, or counter thread if the body is
 * large.
 *
 * Must hold: a member that a provider reads is taken, even if its value is not used. Only the top level is
 * looked at: each provider checks deeper members itself. Tests: those of each provider's requests, such as
 * test/unit/providers/gemini/request.test.ts.
 */
import { exactJson } from '../core/exact-json.js';
import { isGiven, isNestedTooDeeply, isRecord, type Members } from '../core/json.js';
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
 * Throws a FieldError for a member of `holder`, at `path`, that nobody reads, unless it asks for nothing.
 * `read`: the names of those that are read.
 */
export function rejectOthers(holder: Members, path: string, read: readonly string[]): void {
  for (const name in holder)
    if (!read.includes(name) && isGiven(holder[name]) && holder[name] !== false)
      throw new FieldError(`${path}.${name}`, 'has no counterpart in a chat completion');
}

interface FunctionDefinition {
  readonly name: string;
  readonly description: string | undefined;
  /** The JSON schema of the arguments. */
  readonly parameters: Record<string, unknown> | undefined;
  readonly isStrict: boolean;
}

/** The definition of a function, which is at `path`. Throws a FieldError. */
export function functionOf(definition: unknown, path: string): FunctionDefinition {
  if (!isRecord(definition)) throw new FieldError(path, 'must be an object');
  const { description, parameters, strict } = definition;
  const name = stringIn(definition, 'name', path);
  if (isGiven(parameters) && !isRecord(parameters))
    throw new FieldError(`${path}.parameters`, 'must be an object');
  return {
    name,
    description: textOrNothing(description),
    parameters: isRecord(parameters) ? parameters : undefined,
    isStrict: strict === true,
  };
}

function textOrNothing(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** What `tool_choice` asks for: a mode, a call of one tool, or the tools among which the model chooses. */
type ToolChoice =
  | 'auto'
  | 'none'
  | 'required'
  | { readonly name: string }
  | { readonly allowed: readonly string[]; readonly isRequired: boolean };

/** Reads a `tool_choice`, or a `function_call`, at `path`. Throws a FieldError. */
export function toolChoiceOf(choice: unknown, path: string): ToolChoice {
  if (choice === 'auto' || choice === 'none' || choice === 'required') return choice;
  if (isRecord(choice) && choice.type === 'allowed_tools' && isRecord(choice.allowed_tools)) {
    const { mode, tools } = choice.allowed_tools;
    const allowed = (Array.isArray(tools) ? (tools as unknown[]) : []).flatMap((tool) => nameIn(tool) ?? []);
    return { allowed, isRequired: mode === 'required' };
  }
  const name = nameIn(choice);
  if (name === undefined) throw new FieldError(path, 'must be auto, none, required or name a function');
  return { name };
}

/** The name in `{type: 'function', function: {name}}`, or in `{name}`; undefined for another value. */
export function nameIn(tool: unknown): string | undefined {
  const holder = isRecord(tool) && isRecord(tool.function) ? tool.function : tool;
  return isRecord(holder) && typeof holder.name === 'string' ? holder.name : undefined;
}

/** Removes the tools that a choice at `path` does not allow. Throws a FieldError if none is left. */
export function keepAllowed<Tool>(
  tools: Tool[],
  allowed: readonly string[],
  nameOf: (tool: Tool) => unknown,
  path: string,
): void {
  const kept = tools.filter((tool) => allowed.includes(nameOf(tool) as string));
  if (kept.length === 0) throw new FieldError(`${path}.allowed_tools.tools`, 'must name one of the tools');
  tools.splice(0, tools.length, ...kept);
}

/** A `response_format` that asks for JSON. */
interface JsonFormat {
  /** Undefined if any object will do. */
  readonly schema: Record<string, unknown> | undefined;
  readonly name: unknown;
  readonly description: string | undefined;
  readonly isStrict: boolean;
}

/** Undefined if the content has no prescribed form. Throws a FieldError. */
export function jsonFormatOf(format: unknown): JsonFormat | undefined {
  if (!isGiven(format)) return undefined;
  if (!isRecord(format)) throw new FieldError('response_format', 'must be an object');
  const { type, json_schema: named } = format;
  if (type === 'text') return undefined;
  if (type === 'json_object')
    return { schema: undefined, name: undefined, description: undefined, isStrict: false };
  if (type !== 'json_schema')
    throw new FieldError('response_format.type', 'must be text, json_object or json_schema');
  if (!isRecord(named) || !isRecord(named.schema))
    throw new FieldError('response_format.json_schema.schema', 'must be an object');
  const { schema, name, description, strict } = named;
  return { schema, name, description: textOrNothing(description), isStrict: strict === true };
}

/**
 * Returns what `write` makes of `body`, of which it must take all members that are not harmless. `provider`:
 * its name in messages of errors. Throws a FieldError.
 */
export function takingAll<Written>(
  body: Members,
  provider: string,
  { dropUnsupported = false }: { readonly dropUnsupported?: boolean },
  write: (fields: Fields) => Written,
): Written {
  const fields = new Fields(body, provider, dropUnsupported);
  const written = write(fields);
  fields.rejectUntaken();
  return written;
}

export type { Fields };

/**
 * `take`, and each method with the name of a type, takes a member and returns its value: undefined if the
 * member is absent or null. The methods with the name of a type throw a FieldError for another type.
 */
class Fields {
  readonly #body: Members;
  readonly #provider: string;
  readonly #dropUnsupported: boolean;
  readonly #taken = new Set<string>();

  constructor(body: Members, provider: string, dropUnsupported: boolean) {
    this.#body = body;
    this.#provider = provider;
    this.#dropUnsupported = dropUnsupported;
  }

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

  /** The bound of the output. Takes both members, or the older one would be rejected. */
  outputTokensMax(): number | undefined {
    const olderBound = this.integer('max_tokens');
    return this.integer('max_completion_tokens') ?? olderBound;
  }

  /** The texts of `stop`, which may also be a single text, each with its path. */
  stopSequences(): { readonly text: string; readonly path: string }[] {
    const stop = this.take('stop');
    if (stop === undefined) return [];
    const list: readonly unknown[] = Array.isArray(stop) ? stop : [stop];
    return list.map((text, index) => {
      const path = Array.isArray(stop) ? `stop[${index}]` : 'stop';
      if (typeof text !== 'string') throw new FieldError(path, 'must be a string');
      return { text, path };
    });
  }

  /**
   * Call if the provider cannot do what the member at the path `field` asks for. Throws a FieldError, or
   * returns if the upstream has `drop_unsupported`: then the caller leaves the member out.
   */
  unsupported(field: string, reason = `is not supported by ${this.#provider}`): void {
    if (!this.#dropUnsupported) throw new FieldError(field, reason);
  }

  /**
   * Call for a message of the assistant, at `path`, if the provider reads no images or sound of earlier
   * responses: without them the model would not know what the conversation is about. Throws a FieldError, or
   * returns if the upstream has `drop_unsupported`.
   */
  rejectMedia(message: Members, path: string): void {
    for (const name of ['images', 'audio']) {
      const value = message[name];
      const isEmpty = Array.isArray(value) && value.length === 0;
      if (isGiven(value) && !isEmpty) this.unsupported(`${path}.${name}`);
    }
  }

  /** For a provider without choices, penalties and probabilities, and with texts alone. */
  rejectChoices(): void {
    if ((this.integer('n') ?? 1) !== 1) this.unsupported('n', `must be 1 with ${this.#provider}`);
    for (const name of ['frequency_penalty', 'presence_penalty', 'top_logprobs'])
      if ((this.number(name) ?? 0) !== 0) this.unsupported(name);
    if (Object.keys(this.record('logit_bias') ?? {}).length > 0) this.unsupported('logit_bias');
    if ((this.list('modalities') ?? []).some((modality) => modality !== 'text'))
      this.unsupported('modalities');
  }

  /** A member that is null, false or an empty list asks for nothing, so it is not rejected. */
  rejectUntaken(): void {
    for (const name in this.#body) {
      if (this.#taken.has(name) || HARMLESS.has(name)) continue;
      const value = this.#body[name];
      if (value === null || value === undefined || value === false) continue;
      if (Array.isArray(value) && value.length === 0) continue;
      this.unsupported(name);
    }
  }
}
