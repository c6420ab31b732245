/**
 * How providers answer, whole and as a stream, made from one description: written from their references, and
 * apart from the mocks, so that it is a reading of its own. Blocks come in the order in which a model makes
 * them.
 */
import { crc32 } from 'node:zlib';

export type Block =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'thinking'; readonly text: string; readonly signature: string }
  | { readonly kind: 'redacted'; readonly data: string }
  | { readonly kind: 'tool'; readonly id: string; readonly name: string; readonly args: object }
  /** Gemini signs its first call. */
  | {
      readonly kind: 'signed';
      readonly id: string;
      readonly name: string;
      readonly args: object;
      readonly signature: string;
    };

export interface AnswerCase {
  readonly name: string;
  readonly blocks: readonly Block[];
  /** In the provider's words. */
  readonly stop: string;
  /** In the provider's form. */
  readonly usage: Readonly<Record<string, unknown>>;
}

/** One way in which providers speak; a provider may have two, by model. */
export interface Dialect {
  /** As `usage` of AnswerCase; the first is that of most cases. */
  readonly usages: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** The first three: of text, of a bound that is reached, of tools. */
  readonly stops: readonly [string, string, string, ...string[]];
  /** What it has words for. */
  readonly kinds: readonly Block['kind'][];
  /** The content-type of a stream. */
  readonly streamType: string;
  whole(answer: AnswerCase): object;
  /** The whole stream; its events have so many characters of a text. */
  stream(answer: AnswerCase, pieceChars?: number): Buffer;
}

const PIECE_CHARS = 7;

/** Pieces of a text as a stream brings them, and never half of a code point. */
function piecesOf(text: string, chars = PIECE_CHARS): string[] {
  const points = Array.from(text);
  const pieces: string[] = [];
  for (let at = 0; at < points.length; at += chars) pieces.push(points.slice(at, at + chars).join(''));
  return pieces;
}

const event = (name: string, data: object): string => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;

/** Anthropic: https://docs.anthropic.com/en/api/messages and …/messages-streaming, July 2026. */
export const ANTHROPIC: Dialect = {
  usages: {
    plain: { input_tokens: 12, output_tokens: 9 },
    'cache read': {
      input_tokens: 3,
      cache_read_input_tokens: 100,
      cache_creation_input_tokens: 0,
      output_tokens: 9,
    },
    'cache written': {
      input_tokens: 3,
      cache_read_input_tokens: 0,
      cache_creation_input_tokens: 100,
      cache_creation: { ephemeral_5m_input_tokens: 100, ephemeral_1h_input_tokens: 0 },
      output_tokens: 9,
    },
    'cache written for both lifetimes': {
      input_tokens: 3,
      cache_read_input_tokens: 50,
      cache_creation_input_tokens: 100,
      cache_creation: { ephemeral_5m_input_tokens: 40, ephemeral_1h_input_tokens: 60 },
      output_tokens: 9,
      service_tier: 'standard',
    },
    'cache null': {
      input_tokens: 12,
      cache_read_input_tokens: null,
      cache_creation_input_tokens: null,
      output_tokens: 9,
    },
  },
  stops: [
    'end_turn',
    'max_tokens',
    'tool_use',
    'stop_sequence',
    'refusal',
    'pause_turn',
    'model_context_window_exceeded',
  ],
  kinds: ['text', 'thinking', 'redacted', 'tool'],
  streamType: 'text/event-stream',
  whole: ({ blocks, stop, usage }) => ({
    id: 'msg_01XFDUDYJgAACzvnptvVoYEL',
    type: 'message',
    role: 'assistant',
    model: 'claude-sonnet-4-5-20250929',
    content: blocks.map((block) =>
      block.kind === 'text'
        ? { type: 'text', text: block.text }
        : block.kind === 'thinking'
          ? { type: 'thinking', thinking: block.text, signature: block.signature }
          : block.kind === 'redacted'
            ? { type: 'redacted_thinking', data: block.data }
            : { type: 'tool_use', id: block.id, name: block.name, input: block.args },
    ),
    stop_reason: stop,
    stop_sequence: stop === 'stop_sequence' ? 'END' : null,
    usage,
  }),
  stream: ({ blocks, stop, usage }, pieceChars) => {
    const message = {
      id: 'msg_01XFDUDYJgAACzvnptvVoYEL',
      type: 'message',
      role: 'assistant',
      model: 'claude-sonnet-4-5-20250929',
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: { ...usage, output_tokens: 1 },
    };
    const events = [
      event('message_start', { type: 'message_start', message }),
      event('ping', { type: 'ping' }),
    ];
    blocks.forEach((block, index) => {
      const delta = (value: object): void => {
        events.push(event('content_block_delta', { type: 'content_block_delta', index, delta: value }));
      };
      const start = (value: object): void => {
        events.push(
          event('content_block_start', { type: 'content_block_start', index, content_block: value }),
        );
      };
      if (block.kind === 'text') {
        start({ type: 'text', text: '' });
        for (const text of piecesOf(block.text, pieceChars)) delta({ type: 'text_delta', text });
      } else if (block.kind === 'thinking') {
        start({ type: 'thinking', thinking: '', signature: '' });
        for (const thinking of piecesOf(block.text, pieceChars)) delta({ type: 'thinking_delta', thinking });
        delta({ type: 'signature_delta', signature: block.signature });
      } else if (block.kind === 'redacted') start({ type: 'redacted_thinking', data: block.data });
      else {
        start({ type: 'tool_use', id: block.id, name: block.name, input: {} });
        delta({ type: 'input_json_delta', partial_json: '' });
        if (Object.keys(block.args).length > 0)
          for (const partial of piecesOf(JSON.stringify(block.args)))
            delta({ type: 'input_json_delta', partial_json: partial });
      }
      events.push(event('content_block_stop', { type: 'content_block_stop', index }));
    });
    const delta = { stop_reason: stop, stop_sequence: stop === 'stop_sequence' ? 'END' : null };
    events.push(
      event('message_delta', { type: 'message_delta', delta, usage: { output_tokens: usage.output_tokens } }),
      event('message_stop', { type: 'message_stop' }),
    );
    return Buffer.from(events.join(''));
  },
};

function geminiPart(block: Block): object {
  if (block.kind === 'text') return { text: block.text };
  if (block.kind === 'thinking') return { text: block.text, thought: true };
  if (block.kind === 'redacted') throw new Error('not of Gemini');
  return {
    functionCall: { name: block.name, args: block.args, ...(block.id === '' ? {} : { id: block.id }) },
    ...(block.kind === 'signed' ? { thoughtSignature: block.signature } : {}),
  };
}
const GEMINI_HEAD = { modelVersion: 'gemini-2.5-flash', responseId: 'kXvNaPqDLtWz7dcP1MSCqQg' };

/** Gemini: https://ai.google.dev/api/generate-content, July 2026. */
export const GEMINI: Dialect = {
  usages: {
    plain: { promptTokenCount: 12, candidatesTokenCount: 9, totalTokenCount: 21 },
    thinking: { promptTokenCount: 12, candidatesTokenCount: 9, thoughtsTokenCount: 30, totalTokenCount: 51 },
    cached: {
      promptTokenCount: 120,
      cachedContentTokenCount: 100,
      candidatesTokenCount: 9,
      totalTokenCount: 129,
      promptTokensDetails: [{ modality: 'TEXT', tokenCount: 120 }],
      cacheTokensDetails: [{ modality: 'TEXT', tokenCount: 100 }],
    },
    'image and audio': {
      promptTokenCount: 320,
      candidatesTokenCount: 9,
      totalTokenCount: 329,
      promptTokensDetails: [
        { modality: 'TEXT', tokenCount: 12 },
        { modality: 'IMAGE', tokenCount: 258 },
        { modality: 'AUDIO', tokenCount: 50 },
      ],
      candidatesTokensDetails: [{ modality: 'TEXT', tokenCount: 9 }],
    },
    'tool use': {
      promptTokenCount: 12,
      toolUsePromptTokenCount: 40,
      candidatesTokenCount: 9,
      totalTokenCount: 61,
    },
  },
  stops: [
    'STOP',
    'MAX_TOKENS',
    'STOP',
    'SAFETY',
    'RECITATION',
    'LANGUAGE',
    'BLOCKLIST',
    'PROHIBITED_CONTENT',
    'SPII',
    'MALFORMED_FUNCTION_CALL',
    'OTHER',
  ],
  kinds: ['text', 'thinking', 'tool', 'signed'],
  streamType: 'text/event-stream',
  whole: ({ blocks, stop, usage }) => ({
    candidates: [
      {
        content: { role: 'model', parts: blocks.map(geminiPart) },
        finishReason: stop,
        index: 0,
        avgLogprobs: -0.2,
      },
    ],
    usageMetadata: usage,
    ...GEMINI_HEAD,
  }),
  stream: ({ blocks, stop, usage }, pieceChars) => {
    const parts = blocks.flatMap((block) =>
      block.kind === 'text' || block.kind === 'thinking'
        ? piecesOf(block.text, pieceChars).map((text) => geminiPart({ ...block, text }))
        : [geminiPart(block)],
    );
    if (parts.length === 0) parts.push({ text: '' });
    const events = parts.map((part, index) => {
      const isLast = index === parts.length - 1;
      return {
        candidates: [
          { content: { role: 'model', parts: [part] }, ...(isLast ? { finishReason: stop } : {}), index: 0 },
        ],
        // Each event has the count so far.
        usageMetadata: isLast ? usage : { ...usage, candidatesTokenCount: 1, totalTokenCount: undefined },
        ...GEMINI_HEAD,
      };
    });
    return Buffer.from(events.map((data) => `data: ${JSON.stringify(data)}\r\n\r\n`).join(''));
  },
};

/**
 * A frame of AWS's event stream: total length, length of the headers, CRC of both; headers with a name, type
 * 7 and a text; payload; CRC of all. "Event stream encoding" in the guide of Amazon Transcribe.
 */
export function awsFrame(headers: Readonly<Record<string, string>>, payload: string): Buffer {
  const fields = Object.entries(headers).map(([name, value]) => {
    const text = Buffer.from(value);
    const length = Buffer.alloc(3);
    length.writeUInt8(7);
    length.writeUInt16BE(text.length, 1);
    return Buffer.concat([Buffer.from([name.length]), Buffer.from(name), length, text]);
  });
  const head = Buffer.concat(fields);
  const body = Buffer.from(payload);
  const prelude = Buffer.alloc(12);
  prelude.writeUInt32BE(16 + head.length + body.length);
  prelude.writeUInt32BE(head.length, 4);
  prelude.writeUInt32BE(crc32(prelude.subarray(0, 8)), 8);
  const frame = Buffer.concat([prelude, head, body, Buffer.alloc(4)]);
  frame.writeUInt32BE(crc32(frame.subarray(0, -4)), frame.length - 4);
  return frame;
}

export const bedrockEvent = (type: string, data: object): Buffer =>
  awsFrame(
    { ':event-type': type, ':content-type': 'application/json', ':message-type': 'event' },
    JSON.stringify(data),
  );

/** Bedrock: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html, July 2026. */
export const BEDROCK: Dialect = {
  usages: {
    plain: { inputTokens: 12, outputTokens: 9, totalTokens: 21 },
    'cache read': {
      inputTokens: 3,
      outputTokens: 9,
      totalTokens: 112,
      cacheReadInputTokens: 100,
      cacheWriteInputTokens: 0,
    },
    'cache written': {
      inputTokens: 3,
      outputTokens: 9,
      totalTokens: 162,
      cacheReadInputTokens: 50,
      cacheWriteInputTokens: 100,
      cacheDetails: [
        { inputTokens: 40, ttl: '5m' },
        { inputTokens: 60, ttl: '1h' },
      ],
    },
  },
  stops: [
    'end_turn',
    'max_tokens',
    'tool_use',
    'stop_sequence',
    'guardrail_intervened',
    'content_filtered',
    'model_context_window_exceeded',
    'malformed_model_output',
    'malformed_tool_use',
  ],
  kinds: ['text', 'thinking', 'redacted', 'tool'],
  streamType: 'application/vnd.amazon.eventstream',
  whole: ({ blocks, stop, usage }) => ({
    output: {
      message: {
        role: 'assistant',
        content: blocks.map((block) =>
          block.kind === 'text'
            ? { text: block.text }
            : block.kind === 'thinking'
              ? { reasoningContent: { reasoningText: { text: block.text, signature: block.signature } } }
              : block.kind === 'redacted'
                ? { reasoningContent: { redactedContent: block.data } }
                : { toolUse: { toolUseId: block.id, name: block.name, input: block.args } },
        ),
      },
    },
    stopReason: stop,
    usage,
    metrics: { latencyMs: 551 },
  }),
  stream: ({ blocks, stop, usage }, pieceChars) => {
    const frames = [bedrockEvent('messageStart', { p: 'abcd', role: 'assistant' })];
    blocks.forEach((block, contentBlockIndex) => {
      const delta = (value: object): void => {
        frames.push(bedrockEvent('contentBlockDelta', { contentBlockIndex, delta: value, p: 'abc' }));
      };
      if (block.kind === 'text') for (const text of piecesOf(block.text, pieceChars)) delta({ text });
      else if (block.kind === 'thinking') {
        for (const text of piecesOf(block.text, pieceChars)) delta({ reasoningContent: { text } });
        delta({ reasoningContent: { signature: block.signature } });
      } else if (block.kind === 'redacted') delta({ reasoningContent: { redactedContent: block.data } });
      else {
        const start = { toolUse: { toolUseId: block.id, name: block.name } };
        frames.push(bedrockEvent('contentBlockStart', { contentBlockIndex, start, p: 'ab' }));
        for (const input of piecesOf(JSON.stringify(block.args))) delta({ toolUse: { input } });
      }
      frames.push(bedrockEvent('contentBlockStop', { contentBlockIndex, p: 'a' }));
    });
    frames.push(
      bedrockEvent('messageStop', { stopReason: stop, p: 'abcdef' }),
      bedrockEvent('metadata', { usage, metrics: { latencyMs: 551 }, p: 'abc' }),
    );
    return Buffer.concat(frames);
  },
};
