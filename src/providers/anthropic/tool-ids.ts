/**
 * Writes the ids of one request's tool calls as Claude and Converse accept them. conversation.ts and
 * bedrock/messages.ts make one ToolIds for each conversation with tool calls. Pure; upstream worker, or
 * counter thread if the body is large.
 *
 * Ids of other providers come here if a conversation has changed its model, or if Claude answers in place of
 * another model. Some have other characters (`functions.read:0`), are empty, or are the same in each
 * response. Anthropic rejects the request for each of these, Converse also for an id above 64 characters.
 *
 * Follows Amazon Bedrock API Reference, "ToolUseBlock", and Anthropic's errors "String should match pattern
 * '^[a-zA-Z0-9_-]+$'" and "`tool_use` ids must be unique", 2026-11.
 *
 * Must hold: no two calls of a request get one id, and the result of a call gets the id of that call. An id
 * depends on earlier messages alone, or a longer conversation would lose the prompt cache. The time does not
 * grow with the square of the number of calls.
 */
import { hash } from 'node:crypto';

/** Converse allows 64 characters. This leaves some of them for a number. */
const PLAIN_CHARS_MAX = 56;
const UNNAMED = 'call';

/**
 * The calls of one conversation, by the ids that came with them: some servers give each response the same
 * ids, or empty ones. `Value`: what the result of a call needs. gemini/contents.ts uses it too.
 */
export class CallsById<Value> {
  readonly #calls = new Map<unknown, { readonly values: Value[]; answered: number }>();

  add(id: string, value: Value): void {
    const calls = this.#calls.get(id);
    if (calls === undefined) this.#calls.set(id, { values: [value], answered: 0 });
    else calls.values.push(value);
  }

  /** Of the first call with the id that has no result yet, else of the last; undefined without a call. */
  valueForResult(id: unknown): Value | undefined {
    const calls = this.#calls.get(id);
    if (calls === undefined) return undefined;
    const { values } = calls;
    // A result too many must not count: a later call with the id would lose its own.
    return calls.answered < values.length ? values[calls.answered++] : values.at(-1);
  }
}

export class ToolIds {
  readonly #used = new Set<string>();
  /** By an id without a number: the last number that was tried. */
  readonly #numbers = new Map<string, number>();
  readonly #calls = new CallsById<string>();

  ofCall(id: string): string {
    const plainId = plainIdOf(id);
    let number = this.#numbers.get(plainId) ?? 1;
    let newId = number === 1 ? plainId : `${plainId}_${number}`;
    while (this.#used.has(newId)) newId = `${plainId}_${++number}`;
    this.#numbers.set(plainId, number);
    this.#used.add(newId);
    this.#calls.add(id, newId);
    return newId;
  }

  /** A second result of a call, or one without a call, gets an id that the provider will reject. */
  ofResult(id: string): string {
    return this.#calls.valueForResult(id) ?? plainIdOf(id);
  }
}

function plainIdOf(id: string): string {
  if (id === '') return UNNAMED;
  const plainId = id.replace(/[^\w-]/g, '_');
  return plainId.length <= PLAIN_CHARS_MAX ? plainId : hash('sha256', id, 'base64url');
}
