/**
 * Joins the pieces of tool calls of servers with OpenAI's protocol, which send them differently.
 * messages/message-stream.ts and responses/response-stream.ts hold each piece against the call that is open.
 * Pure; upstream worker.
 *
 * How the pieces of a tool call come, of which OpenAI sends id and name with the first alone:
 *
 *     DashScope, DeepSeek         repeat id and name as empty texts with each piece; SGLang as null
 *     Command-A on vLLM, vmlx     send the name after the first piece
 *     lmdeploy                    gives every tool call the index 0
 *     others                      repeat id and name; send whole calls without an index, or without an id
 *
 * Must hold: pieces of one tool call become one call, and those of two calls two (also
 * test/unit/doors/messages/messages-dialect.test.ts, test/unit/doors/responses/response-stream.test.ts).
 */
import { isRecord, type Members, membersOf } from '../core/json.js';
import { ProviderError } from '../providers/provider.js';

/** A tool call, as far as its pieces have come. `id` and `name` are undefined until a piece has them. */
export interface ToolCallSoFar {
  id: string | undefined;
  name: string | undefined;
  /** The arguments so far, as JSON text. */
  json: string;
}

interface CallPiece extends Readonly<ToolCallSoFar> {
  readonly index: number | undefined;
}

/**
 * Reads an element of `tool_calls` of a delta, or of a whole message. The arguments may be an object: then
 * they are whole.
 */
export function toolCallPieceOf(call: Members): CallPiece {
  const calledFunction = isRecord(call.function) ? call.function : membersOf(call.custom);
  const args = calledFunction.arguments ?? calledFunction.input;
  return {
    id: nonEmptyText(call.id),
    name: nonEmptyText(calledFunction.name),
    json: isRecord(args) ? JSON.stringify(args) : (nonEmptyText(args) ?? ''),
    index: isIndex(call.index) ? call.index : undefined,
  };
}

/**
 * Whether a piece at the same index, or without one, begins another tool call than `call`: by another id,
 * with a name as well if it has an index; or by a second name, if `call` has no id and the piece no index.
 * Any other piece belongs to `call`: servers repeat the name of a call.
 */
export function beginsOtherToolCall({ id, name, index }: CallPiece, call: ToolCallSoFar): boolean {
  if (id !== undefined && call.id !== undefined)
    return id !== call.id && (name !== undefined || index === undefined);
  return index === undefined && call.id === undefined && name !== undefined && call.name !== undefined;
}

/**
 * Whether a piece belongs to the call that was closed last at its index: it has the call's id, or neither id
 * nor name. Then it is ignored. Throws a ProviderError if it brings arguments, which cannot be written any
 * more.
 */
export function isRestOfClosedCall(
  { id, name, json }: CallPiece,
  closedCall: ToolCallSoFar | undefined,
): boolean {
  if (closedCall === undefined || (id === undefined ? name !== undefined : id !== closedCall.id))
    return false;
  if (json !== '') throw ProviderError.invalid('a tool got arguments after the next item had begun');
  return true;
}

/** Adds a piece of the same call (`beginsOtherToolCall`) to `call`. The first id and the first name stay. */
export function addPiece(call: ToolCallSoFar, piece: CallPiece): void {
  call.id ??= piece.id;
  call.name ??= piece.name;
  call.json += piece.json;
}

/**
 * Whether the tool call can be sent to a client: its name has come, and its id as well. If arguments have
 * come before an id, the server sends no id.
 */
export function canSendToolCall({ id, name, json }: ToolCallSoFar): boolean {
  return name !== undefined && (id !== undefined || json !== '');
}

/** A number below 0 tells no call from another: it is as if the piece had no index. */
function isIndex(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Also undefined for an empty text, which some servers send for a member that an earlier piece had. */
function nonEmptyText(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}
