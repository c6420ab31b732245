/**
 * Translates the messages of a chat completion into `system` and `messages` of Converse. request.ts calls
 * `conversationOf`. No I/O; upstream worker, or counter thread if the body is large.
 *
 *     system, developer  at the start: `system`. Later: a <system-reminder> text in the user turn, because
 *                        moving it to the start would void the prompt cache
 *     user, tool         one user turn, up to the next assistant message; tool results first, as Claude
 *                        wants. A placeholder text goes before documents that have no text beside them
 *     assistant          thinking with its signatures, text, tool calls; consecutive messages are one turn
 *
 * Follows Amazon Bedrock API Reference, "Message", "ToolUseBlock", "ToolResultBlock",
 * "ReasoningContentBlock", "ContentBlock", 2026-11.
 *
 * Must hold: only reasoning with a signature goes back, and tool results come first in a turn: otherwise
 * Claude rejects the whole request (test/unit/providers/bedrock/messages.test.ts).
 */
import { isRecord, type Members } from '../../core/json.js';
import { PLACEHOLDER_USER_TEXT, reminderOf } from '../anthropic/conversation.js';
import { ToolIds } from '../anthropic/tool-ids.js';
import { argumentsOf, stringIn, type Fields } from '../fields.js';
import { FieldError } from '../provider.js';
import { addCachePoint, ContentWriter, type Block } from './content.js';
import type { ModelFacts } from './models.js';

interface Turn {
  readonly role: 'user' | 'assistant';
  readonly content: readonly Block[];
}

interface OpenTurn {
  readonly role: Turn['role'];
  /** Tool results and their cache points, which go before the other blocks. */
  readonly results: Block[];
  readonly blocks: Block[];
}

const PLACEHOLDER_BLOCK: Block = { text: PLACEHOLDER_USER_TEXT };
/** Goes before an assistant turn that would be the first: Converse wants a user turn first. */
const PLACEHOLDER_TURN: Turn = { role: 'user', content: [PLACEHOLDER_BLOCK] };

export interface Conversation {
  readonly system: readonly Block[];
  readonly turns: readonly Turn[];
  /** Names of the tools that assistant messages called. */
  readonly calledTools: ReadonlySet<string>;
  /** Whether a turn calls a tool or has a tool's result. */
  readonly usesTools: boolean;
  /**
   * The last turn has tool results, and the turn that called the tools has no reasoning: Claude then refuses
   * to think with a budget.
   */
  readonly continuesWithoutThinking: boolean;
}

/** A `cache_control` of `body` puts a cache point after the last message. Throws a FieldError. */
export function conversationOf(fields: Fields, body: Members, facts: ModelFacts): Conversation {
  const writer = new ConversationWriter(facts, fields);
  (fields.list('messages') ?? []).forEach((message, index) => {
    const path = `messages[${index}]`;
    if (!isRecord(message)) throw new FieldError(path, 'must be an object');
    writer.add(message, path);
  });
  return writer.finish(body);
}

class ConversationWriter {
  readonly #facts: ModelFacts;
  readonly #fields: Fields;
  readonly #content: ContentWriter;
  readonly #system: Block[] = [];
  readonly #turns: OpenTurn[] = [];
  readonly #calledTools = new Set<string>();
  #toolIds: ToolIds | undefined;
  #usesTools = false;
  /** The value for Conversation if no further message came. */
  #continuesWithoutThinking = false;

  constructor(facts: ModelFacts, fields: Fields) {
    this.#facts = facts;
    this.#fields = fields;
    this.#content = new ContentWriter(facts);
  }

  get #ids(): ToolIds {
    return (this.#toolIds ??= new ToolIds());
  }

  add(message: Members, path: string): void {
    switch (message.role) {
      case 'system':
      case 'developer':
        if (this.#turns.length === 0) this.#system.push(...this.#blocksOf(message, path));
        else this.#addBlocks('user', this.#blocksOf(message, path).map(asReminder));
        break;
      case 'user': {
        const blocks = this.#blocksOf(message, path);
        if (blocks.length === 0) {
          throw new FieldError(`${path}.content`, 'must not be empty: Bedrock refuses that');
        }
        this.#continuesWithoutThinking = false;
        this.#addBlocks('user', blocks);
        break;
      }
      case 'assistant':
        this.#addAssistant(message, path);
        break;
      case 'tool': {
        this.#usesTools = true;
        this.#turnFor('user').results.push(...this.#toolResultOf(message, path));
        break;
      }
      default:
        throw new FieldError(`${path}.role`, 'is not supported by Bedrock');
    }
  }

  finish(body: Members): Conversation {
    const turns = this.#turns;
    const lastTurn = turns.at(-1);
    if (lastTurn === undefined) {
      throw new FieldError('messages', 'must have one message that is not empty and not of the system');
    }
    if (lastTurn.role === 'assistant') trimPrefill(lastTurn.blocks);
    const contents = turns.map(({ results, blocks }) => {
      const withText = needsText(blocks) ? [PLACEHOLDER_BLOCK, ...blocks] : blocks;
      return results.length === 0 ? withText : [...results, ...withText];
    });
    addCachePoint(contents.at(-1)!, body, this.#facts);
    const written = turns.map(({ role }, index): Turn => ({ role, content: contents[index]! }));
    return {
      system: this.#system,
      turns: turns[0]!.role === 'assistant' ? [PLACEHOLDER_TURN, ...written] : written,
      calledTools: this.#calledTools,
      usesTools: this.#usesTools,
      continuesWithoutThinking: this.#continuesWithoutThinking,
    };
  }

  #addAssistant(message: Members, path: string): void {
    if (isRecord(message.function_call))
      throw new FieldError(`${path}.function_call`, 'is not supported by Bedrock');
    this.#fields.rejectMedia(message, path);
    const reasoning = reasoningBlocksOf(message);
    const calls = this.#toolCallsOf(message.tool_calls, `${path}.tool_calls`);
    const content = this.#content.blocks(message.content, `${path}.content`);
    const { refusal } = message;
    if (content.length === 0 && typeof refusal === 'string' && refusal.trim() !== '')
      content.push({ text: refusal });
    const blocks = [...reasoning, ...content, ...calls];
    if (blocks.length === 0) return;
    this.#usesTools ||= calls.length > 0;
    this.#continuesWithoutThinking = calls.length > 0 && reasoning.length === 0;
    addCachePoint(blocks, message, this.#facts);
    this.#addBlocks('assistant', blocks);
  }

  /** The blocks of an assistant message's tool calls. Adds the names of the tools to `#calledTools`. */
  #toolCallsOf(calls: unknown, path: string): Block[] {
    if (calls === undefined || calls === null) return [];
    if (!Array.isArray(calls)) throw new FieldError(path, 'must be an array');
    return calls.map((call: unknown, index) => {
      const callPath = `${path}[${index}]`;
      if (!isRecord(call) || typeof call.id !== 'string')
        throw new FieldError(`${callPath}.id`, 'must be a string');
      const { function: calledFunction } = call;
      if (!isRecord(calledFunction) || typeof calledFunction.name !== 'string') {
        throw new FieldError(`${callPath}.function.name`, 'must be a string');
      }
      const { name } = calledFunction;
      const input = argumentsOf(calledFunction.arguments, `${callPath}.function.arguments`);
      this.#calledTools.add(name);
      return { toolUse: { toolUseId: this.#ids.ofCall(call.id), name, input } };
    });
  }

  #blocksOf(message: Members, path: string): Block[] {
    const blocks = this.#content.blocks(message.content, `${path}.content`);
    addCachePoint(blocks, message, this.#facts);
    return blocks;
  }

  #toolResultOf(message: Members, path: string): Block[] {
    const { content, is_error: isError } = message;
    const id = stringIn(message, 'tool_call_id', path);
    // Converse accepts no cache point within a tool result. That of a part goes after the whole result.
    const parts = this.#content
      .blocks(content, `${path}.content`)
      .filter((block) => !('cachePoint' in block));
    const toolResult = {
      toolUseId: this.#ids.ofResult(id),
      // Converse wants at least one block, which may be an empty text.
      content: parts.length === 0 ? [{ text: '' }] : parts,
      // OpenAI's protocol has no such member, so Anthropic's name is accepted.
      ...(isError === true && { status: 'error' }),
    };
    const blocks: Block[] = [{ toolResult }];
    for (const part of Array.isArray(content) ? (content as Members[]) : [])
      addCachePoint(blocks, part, this.#facts);
    addCachePoint(blocks, message, this.#facts);
    return blocks;
  }

  #addBlocks(role: Turn['role'], blocks: readonly Block[]): void {
    if (blocks.length > 0) this.#turnFor(role).blocks.push(...blocks);
  }

  /** The last turn if it has that role, else a new turn, which is added. */
  #turnFor(role: Turn['role']): OpenTurn {
    let turn = this.#turns.at(-1);
    if (turn?.role !== role) this.#turns.push((turn = { role, results: [], blocks: [] }));
    return turn;
  }
}

/**
 * Whether Converse would reject a turn with these blocks, because it wants a text beside a document. The text
 * of a tool result does not count, and doors move documents out of results.
 */
function needsText(blocks: readonly Block[]): boolean {
  const hasDocument = blocks.some(({ document }) => document !== undefined);
  return hasDocument && !blocks.some(({ text }) => text !== undefined);
}

/**
 * Removes white space from the end of a prefill, which is a last assistant turn: Claude rejects it there. A
 * cache point may follow the text. No block is blank, so some text remains.
 */
function trimPrefill(blocks: Block[]): void {
  const last = blocks.findLastIndex((block) => !('cachePoint' in block));
  const text = blocks[last]?.text;
  if (typeof text === 'string') blocks[last] = { text: text.trimEnd() };
}

function asReminder(block: Block): Block {
  const { text } = block;
  return typeof text === 'string' ? { text: reminderOf(text) } : block;
}

/**
 * The blocks of an assistant message's reasoning: only what the provider has signed or encrypted, because
 * Claude rejects other reasoning, and DeepSeek rejects all. A client that joins a stream member by member
 * has blocks without text, and all of the text in `reasoning_content`.
 */
function reasoningBlocksOf({
  thinking_blocks: callersBlocks,
  reasoning_content: joinedText,
}: Record<string, unknown>): Block[] {
  if (!Array.isArray(callersBlocks)) return [];
  const blocks: Block[] = [];
  const signatures: string[] = [];
  let hasText = false;
  for (const block of callersBlocks as readonly unknown[]) {
    if (!isRecord(block)) continue;
    const { type, data, thinking: text, signature } = block;
    if (type === 'redacted_thinking' && typeof data === 'string') {
      blocks.push({ reasoningContent: { redactedContent: Buffer.from(data, 'latin1').toString('base64') } });
    } else if (typeof text === 'string' && typeof signature === 'string' && signature !== '') {
      hasText ||= text !== '';
      signatures.push(signature);
      blocks.push({ reasoningContent: { reasoningText: { text, signature } } });
    }
  }
  if (hasText || typeof joinedText !== 'string' || joinedText === '' || signatures.length === 0)
    return blocks;
  // With several blocks nobody knows which part of the text is of which block. Then no reasoning goes back:
  // earlier turns need none.
  if (signatures.length > 1) return [];
  return blocks.map((block) =>
    isRecord(block.reasoningContent) && 'reasoningText' in block.reasoningContent
      ? { reasoningContent: { reasoningText: { text: joinedText, signature: signatures[0] } } }
      : block,
  );
}
