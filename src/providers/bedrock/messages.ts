/**
 * The messages of a chat completion as those of Converse: system texts apart, turns of user and assistant in
 * alternation, results of tools as the user's. request.ts calls it. Upstream worker.
 *
 * Followed: Amazon Bedrock API Reference, "Message", "ToolUseBlock", "ToolResultBlock",
 * "ReasoningContentBlock", 2026-11.
 */
import { isRecord, parsedJson } from '../../core/json.js';
import { FieldError } from '../provider.js';
import { ContentWriter, type Block } from './content.js';
import type { ModelFacts } from './models.js';

interface Turn {
  readonly role: 'user' | 'assistant';
  readonly content: Block[];
}

export interface Conversation {
  readonly system: readonly Block[];
  readonly turns: readonly Turn[];
  /** Names of the tools that were called. */
  readonly called: ReadonlySet<string>;
  /** Whether a turn calls a tool or has a tool's result. */
  readonly usesTools: boolean;
  /** The last turns are calls without reasoning before them, and their results. */
  readonly goesOnUnthought: boolean;
}

/** `body`: of the chat completion; its own `cache_control` marks the end. */
export function conversationOf(
  messages: readonly unknown[],
  body: Readonly<Record<string, unknown>>,
  facts: ModelFacts,
): Conversation {
  const writer = new ContentWriter(facts);
  const system: Block[] = [];
  const turns: Turn[] = [];
  const called = new Set<string>();
  let usesTools = false;
  let goesOnUnthought = false;
  const add = (role: Turn['role'], blocks: readonly Block[]): void => {
    const last = turns.at(-1);
    if (last?.role === role) last.content.push(...blocks);
    else if (blocks.length > 0) turns.push({ role, content: [...blocks] });
  };
  messages.forEach((message, index) => {
    const path = `messages[${index}]`;
    if (!isRecord(message)) throw new FieldError(path, 'must be an object');
    const contentPath = `${path}.content`;
    switch (message.role) {
      // Converse has one place for them, before the turns.
      case 'system':
      case 'developer':
        system.push(...writer.blocks(message.content, contentPath), ...writer.cachePoint(message));
        break;
      case 'user':
        goesOnUnthought = false;
        add('user', [...writer.blocks(message.content, contentPath), ...writer.cachePoint(message)]);
        break;
      case 'assistant': {
        const calls = toolCallsOf(message.tool_calls, `${path}.tool_calls`, called);
        const reasoning = reasoningOf(message.thinking_blocks);
        usesTools ||= calls.length > 0;
        goesOnUnthought = calls.length > 0 && reasoning.length === 0;
        add('assistant', [
          ...reasoning,
          ...writer.blocks(message.content, contentPath),
          ...calls,
          ...writer.cachePoint(message),
        ]);
        break;
      }
      case 'tool':
        usesTools = true;
        add('user', [...toolResultOf(message, path, writer), ...writer.cachePoint(message)]);
        break;
      default:
        throw new FieldError(`${path}.role`, 'is not supported by Bedrock');
    }
  });
  turns.at(-1)?.content.push(...writer.cachePoint(body));
  return { system, turns, called, usesTools, goesOnUnthought };
}

/**
 * Only what the provider has signed, or hidden, can be given back to it: Claude refuses other reasoning, and
 * DeepSeek all.
 */
function reasoningOf(blocks: unknown): Block[] {
  if (!Array.isArray(blocks)) return [];
  return blocks.flatMap((block: unknown): Block[] => {
    if (!isRecord(block)) return [];
    if (block.type === 'redacted_thinking' && typeof block.data === 'string') {
      return [
        { reasoningContent: { redactedContent: Buffer.from(block.data, 'latin1').toString('base64') } },
      ];
    }
    const { thinking: text, signature } = block;
    if (typeof text !== 'string' || typeof signature !== 'string' || signature === '') return [];
    return [{ reasoningContent: { reasoningText: { text, signature } } }];
  });
}

function toolCallsOf(calls: unknown, path: string, called: Set<string>): Block[] {
  if (calls === undefined || calls === null) return [];
  if (!Array.isArray(calls)) throw new FieldError(path, 'must be an array');
  return calls.map((call: unknown, index) => {
    const at = `${path}[${index}]`;
    if (!isRecord(call) || typeof call.id !== 'string') throw new FieldError(`${at}.id`, 'must be a string');
    const { function: named } = call;
    if (!isRecord(named) || typeof named.name !== 'string') {
      throw new FieldError(`${at}.function.name`, 'must be a string');
    }
    const { name, arguments: text } = named;
    const input = text === undefined || text === '' ? {} : typeof text === 'string' ? parsedJson(text) : text;
    if (!isRecord(input)) throw new FieldError(`${at}.function.arguments`, 'must be a JSON object');
    called.add(name);
    return { toolUse: { toolUseId: call.id, name, input } };
  });
}

function toolResultOf(message: Record<string, unknown>, path: string, writer: ContentWriter): Block[] {
  const { tool_call_id: id, content, is_error: isError } = message;
  if (typeof id !== 'string') throw new FieldError(`${path}.tool_call_id`, 'must be a string');
  const blocks = writer.blocks(content, `${path}.content`);
  // A mark of a part goes after the result: within it Converse has none.
  const marks = blocks.filter((block) => 'cachePoint' in block);
  const results = blocks.filter((block) => !('cachePoint' in block));
  const toolResult = {
    toolUseId: id,
    // A result may be empty, its list not.
    content: results.length === 0 ? [{ text: '' }] : results,
    // OpenAI's protocol has no word for it; Anthropic's member is taken.
    ...(isError === true && { status: 'error' }),
  };
  return [{ toolResult }, ...marks.slice(0, 1)];
}
