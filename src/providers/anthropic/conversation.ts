/**
 * Translates the messages of a chat completion into Anthropic's `system` and `messages`. request.ts makes one
 * Conversation for each request. No I/O, and the caller's messages are not changed; upstream worker, or
 * counter thread if the body is large.
 *
 * Follows platform.claude.com, pages "Messages", "Handle tool calls" and "Mid-conversation system messages",
 * 2026-11:
 *
 *     system, developer    at the start: `system`. Later: a system turn after a user turn, if the model has
 *                          such turns; else a <system-reminder> text in the user turn. It is not moved to the
 *                          start, because that would void the prompt cache of all messages after it
 *     user, tool, function one user turn, up to the next assistant message; tool results first, as
 *                          Anthropic requires. A system turn between two user messages goes after both
 *     assistant            thinking blocks with their signatures, text, tool calls; consecutive messages are
 *                          one turn
 *
 * Must hold: thinking blocks go back unchanged, or Anthropic rejects the request for a wrong signature. No
 * turn is without blocks, which Anthropic rejects too (test/unit/providers/anthropic/conversation.test.ts).
 * The constructor reads all messages, and nothing changes afterwards, so request.ts may read the members in
 * any order.
 */
import { isRecord, type Members } from '../../core/json.js';
import { argumentsOf, stringIn } from '../fields.js';
import { FieldError } from '../provider.js';
import { blocksOf, hasText, withCacheControl, type Block, type ContentRules } from './content.js';
import { ToolIds } from './tool-ids.js';

interface Turn {
  readonly role: 'user' | 'assistant';
  /** Tool results, which go before the other blocks. */
  readonly results: Block[];
  readonly blocks: Block[];
  /** Texts of a system turn that goes after this user turn. */
  readonly system: Block[];
}

/**
 * Anthropic wants a user turn first, and so do Converse (bedrock/messages.ts) and Gemini
 * (gemini/contents.ts). LiteLLM sends the same text, so prompts are the same through either.
 */
export const PLACEHOLDER_USER_TEXT = 'Please continue.';

export class Conversation {
  readonly system: Block[] = [];
  readonly #turns: Turn[] = [];
  readonly #rules: ContentRules;
  readonly #allowsSystemTurns: boolean;
  /** System texts after an assistant turn, which go after the next user turn (`#turnFor`). */
  #pendingSystem: Block[] = [];
  /** Undefined before the first tool call or result. */
  #toolIds: ToolIds | undefined;
  /** The id that stands for the last `function_call`, which has none, and for the result of that call. */
  #functionCallId = '';

  /** `allowsSystemTurns`: the model accepts system turns. The door has checked that messages are objects. */
  constructor(messages: readonly unknown[], rules: ContentRules, allowsSystemTurns: boolean) {
    this.#rules = rules;
    this.#allowsSystemTurns = allowsSystemTurns;
    for (let index = 0; index < messages.length; index++) {
      const message = messages[index];
      if (isRecord(message)) this.#add(message, index);
    }
    this.#flushPendingSystem();
    if (this.#turns.length === 0)
      throw new FieldError('messages', 'must have one message that is not empty and not of the system');
    if (this.#turns[0]!.role === 'assistant')
      this.#turns.unshift(turnOf('user', [{ type: 'text', text: PLACEHOLDER_USER_TEXT }]));
    const lastTurn = this.#turns.at(-1)!;
    // A last assistant turn is a prefill, the start of the response. Anthropic rejects a prefill that ends
    // with white space. No block is blank, so some text remains.
    const prefill = lastTurn.role === 'assistant' ? lastTurn.blocks.at(-1) : undefined;
    if (prefill?.type === 'text') prefill.text = (prefill.text as string).trimEnd();
  }

  get messages(): readonly unknown[] {
    const messages: unknown[] = [];
    for (const { role, results, blocks, system } of this.#turns) {
      messages.push({ role, content: contentOf(results.length === 0 ? blocks : [...results, ...blocks]) });
      if (system.length > 0) messages.push({ role: 'system', content: contentOf(system) });
    }
    return messages;
  }

  /**
   * Whether the last turn has tool results, and the assistant turn that called the tools does not begin with
   * thinking. Models that think with a budget then refuse to think, so request.ts leaves thinking off.
   */
  get continuesWithoutThinking(): boolean {
    const lastTurn = this.#turns.at(-1)!;
    const callingTurn = this.#turns.at(-2);
    return lastTurn.results.length > 0 && callingTurn !== undefined && !isThinking(callingTurn.blocks[0]);
  }

  get #ids(): ToolIds {
    return (this.#toolIds ??= new ToolIds());
  }

  #add(message: Members, index: number): void {
    const path = `messages[${index}]`;
    switch (message.role) {
      case 'system':
      case 'developer':
        this.#addSystem(this.#blocksOf(message, path));
        break;
      case 'assistant':
        this.#addAssistant(message, path, index);
        break;
      case 'tool':
        this.#addResult(message, path, this.#ids.ofResult(stringIn(message, 'tool_call_id', path)));
        break;
      case 'function':
        this.#addResult(message, path, this.#functionCallId);
        break;
      default: {
        const blocks = this.#blocksOf(message, path);
        if (blocks.length === 0)
          throw new FieldError(`${path}.content`, 'must not be empty: Claude refuses that');
        this.#turnFor('user').blocks.push(...blocks);
      }
    }
  }

  #addSystem(blocks: Block[]): void {
    if (blocks.length === 0) return;
    const lastTurn = this.#turns.at(-1);
    if (lastTurn === undefined) this.system.push(...blocks);
    else if (!this.#allowsSystemTurns) this.#turnFor('user').blocks.push(...blocks.map(asReminder));
    else if (lastTurn.role === 'user') lastTurn.system.push(...blocks);
    else this.#pendingSystem.push(...blocks);
  }

  #addAssistant(message: Members, path: string, index: number): void {
    this.#rules.fields.rejectMedia(message, path);
    const blocks = thinkingOf(message, `${path}.thinking_blocks`);
    blocks.push(...blocksOf(message.content, path, this.#rules));
    if (blocks.length === 0 && typeof message.refusal === 'string' && hasText(message.refusal))
      blocks.push({ type: 'text', text: message.refusal });
    const { tool_calls: calls, function_call: call } = message;
    if (Array.isArray(calls))
      for (let position = 0; position < calls.length; position++)
        blocks.push(toolUseOf(calls[position], `${path}.tool_calls[${position}]`, this.#ids));
    if (isRecord(call)) {
      this.#functionCallId = `function_call_${index}`;
      blocks.push(functionUseOf(call, this.#functionCallId, `${path}.function_call`));
    }
    if (blocks.length === 0) return;
    this.#copyCacheControl(blocks, message, path);
    this.#turnFor('assistant').blocks.push(...blocks);
  }

  #addResult(message: Members, path: string, id: string): void {
    const content = blocksOf(message.content, path, this.#rules);
    const toolResult: Block = { type: 'tool_result', tool_use_id: id };
    if (content.length > 0) toolResult.content = contentOf(content);
    this.#turnFor('user').results.push(withCacheControl(toolResult, message, path));
  }

  #blocksOf(message: Members, path: string): Block[] {
    const blocks = blocksOf(message.content, path, this.#rules);
    this.#copyCacheControl(blocks, message, path);
    return blocks;
  }

  /** The mark of the message replaces that of its last block. In thinking Anthropic rejects marks. */
  #copyCacheControl(blocks: Block[], message: Members, path: string): void {
    const lastBlock = blocks.at(-1);
    if (lastBlock !== undefined && !isThinking(lastBlock)) withCacheControl(lastBlock, message, path);
  }

  /** The turn to which the next message of that role goes: the last turn, or a new turn, which is added. */
  #turnFor(role: Turn['role']): Turn {
    if (this.#pendingSystem.length > 0 && role === 'user') {
      const turn = turnOf('user', []);
      turn.system.push(...this.#pendingSystem);
      this.#pendingSystem = [];
      this.#turns.push(turn);
      return turn;
    }
    this.#flushPendingSystem();
    const lastTurn = this.#turns.at(-1);
    if (lastTurn?.role === role) return lastTurn;
    const turn = turnOf(role, []);
    this.#turns.push(turn);
    return turn;
  }

  /** Call if no user turn follows the assistant's: the pending system texts become a turn of their own. */
  #flushPendingSystem(): void {
    if (this.#pendingSystem.length === 0) return;
    this.#turns.push(turnOf('user', this.#pendingSystem.map(asReminder)));
    this.#pendingSystem = [];
  }
}

function isThinking(block: Block | undefined): boolean {
  return block?.type === 'thinking' || block?.type === 'redacted_thinking';
}

function turnOf(role: Turn['role'], blocks: Block[]): Turn {
  return { role, results: [], blocks, system: [] };
}

/** The value of `content`: a single text block is written as a string, which is shorter. */
export function contentOf(blocks: readonly Block[]): unknown {
  const [block] = blocks;
  return blocks.length === 1 && block!.type === 'text' && block!.cache_control === undefined
    ? block!.text
    : blocks;
}

/** A block of a system message within a user turn. Blocks that are no text stay as they are. */
function asReminder(block: Block): Block {
  return typeof block.text === 'string' ? { ...block, text: reminderOf(block.text) } : block;
}

/** The form that Claude knows from Anthropic's own clients. bedrock/messages.ts calls this too. */
export function reminderOf(text: string): string {
  return `<system-reminder>\n${text}\n</system-reminder>`;
}

/**
 * The thinking blocks of an earlier response, unchanged: Anthropic checks their signatures. Clients that join
 * a stream member by member have blocks without text, and the text in `reasoning_content`.
 */
function thinkingOf(message: Members, path: string): Block[] {
  const { thinking_blocks: callersBlocks, reasoning_content: reasoning } = message;
  if (callersBlocks === undefined || callersBlocks === null) return [];
  if (!Array.isArray(callersBlocks)) throw new FieldError(path, 'must be an array');
  const blocks = callersBlocks.map((block: unknown, index): Block => {
    if (isRecord(block)) {
      const { type, thinking, signature, data } = block;
      if (type === 'redacted_thinking' && typeof data === 'string') return { type, data };
      if (type === 'thinking' && typeof thinking === 'string' && typeof signature === 'string')
        return { type, thinking, signature };
    }
    throw new FieldError(`${path}[${index}]`, 'must be a block of thinking as a response of Claude had it');
  });
  const thinkingBlocks = blocks.filter(({ type }) => type === 'thinking');
  const isWhole = thinkingBlocks.some(({ thinking }) => thinking !== '');
  if (typeof reasoning !== 'string' || reasoning === '' || isWhole) return blocks;
  if (thinkingBlocks.length === 1) thinkingBlocks[0]!.thinking = reasoning;
  // With several blocks nobody knows which part of the text belongs to which, so all thinking is left out.
  // Anthropic allows that for earlier turns.
  return thinkingBlocks.length < 2 ? blocks : [];
}

function toolUseOf(call: unknown, path: string, toolIds: ToolIds): Block {
  if (!isRecord(call)) throw new FieldError(path, 'must be an object');
  const id = toolIds.ofCall(stringIn(call, 'id', path));
  return withCacheControl(functionUseOf(call.function, id, `${path}.function`), call, path);
}

function functionUseOf(calledFunction: unknown, id: string, path: string): Block {
  if (!isRecord(calledFunction) || typeof calledFunction.name !== 'string')
    throw new FieldError(`${path}.name`, 'must be a string');
  const input = argumentsOf(calledFunction.arguments, `${path}.arguments`);
  return { type: 'tool_use', id, name: calledFunction.name, input };
}
