/**
 * The mock's Responses API of OpenAI, POST /v1/responses, whole and streamed. mock-upstream.ts serves it
 * besides chat completions. This file is written from the reference ("Create a model response",
 * "Streaming events", November 2026), and imports nothing of src/doors (mock-protocol.ts). Pure.
 *
 * What it leaves out: a response always has a message, also if it only calls tools, and the items of a
 * response that ends `incomplete` are `completed`.
 *
 * Must hold: a stream has the events that OpenAI's SDK expects, in their order (test/e2e/responses.test.ts),
 * and each has its place in the stream as its `sequence_number`. One frame is one event.
 */
import { isRecord, parsedJson, type Members } from '../core/json.js';
import { allowedNames, errorText } from './mock-openai.js';
import { BYTES_PER_TOKEN, brokenSse, CREATED_SECONDS, sseFrame, directivesOf } from './mock-protocol.js';
import type { MockCompletion, MockCall, MockError, MockProtocol, MockRequest } from './mock-protocol.js';

const ID = 'resp_mock';

const wrongMember = (message: string, param: string): MockError => ({
  status: 400,
  error: JSON.stringify({ error: { message, type: 'invalid_request_error', param, code: null } }),
});

function textsIn(content: unknown): string[] {
  if (typeof content === 'string') return [content];
  if (!Array.isArray(content)) return [];
  return (content as unknown[]).flatMap((part) =>
    isRecord(part) && typeof part.text === 'string' ? [part.text] : [],
  );
}

function read({ body }: MockCall): MockRequest | MockError {
  const request = parsedJson(body);
  if (!isRecord(request)) return { status: 400, error: errorText('the body is not a JSON object', 'mock') };
  if (typeof request.model !== 'string') return wrongMember("Missing required parameter: 'model'.", 'model');
  for (const name of ['messages', 'max_tokens', 'max_completion_tokens', 'response_format', 'n'])
    if (name in request) return wrongMember(`Unsupported parameter: '${name}'.`, name);
  const { input, tools } = request;
  const items: readonly unknown[] =
    typeof input === 'string' ? [{ role: 'user', content: input }] : Array.isArray(input) ? input : [];
  let prompt = '';
  let promptBytes = Buffer.byteLength(typeof request.instructions === 'string' ? request.instructions : '');
  for (const [index, item] of items.entries()) {
    if (!isRecord(item)) return wrongMember(`Invalid type for 'input[${index}]'.`, `input[${index}]`);
    for (const text of textsIn(item.content)) {
      promptBytes += Buffer.byteLength(text);
      if (item.role === 'user') prompt = text;
    }
    // A tool's result, whose text the mock of chat completions counts too.
    for (const text of textsIn(item.output)) promptBytes += Buffer.byteLength(text);
  }
  const lastItem = items.at(-1);
  return {
    model: request.model,
    stream: request.stream === true,
    includeUsage: true,
    promptTokens: Math.ceil(promptBytes / BYTES_PER_TOKEN),
    directives: directivesOf(prompt),
    ...(request.tool_choice === 'none' && { forbidsTools: true }),
    toolNames: allowedNames(
      (Array.isArray(tools) ? (tools as unknown[]) : []).flatMap((tool) =>
        isRecord(tool) && typeof tool.name === 'string' ? [tool.name] : [],
      ),
      request.tool_choice,
    ),
    endsWithToolResult: isRecord(lastItem) && lastItem.type === 'function_call_output',
  };
}

/** Adds an event to a stream. `members`: all but `type` and `sequence_number`. */
type Send = (type: string, members: object) => void;

interface OutputItem {
  readonly item: Members;
  /** Sends the events between the item's begin and its end. */
  readonly sendContents: (send: Send, itemIds: object) => void;
}

function itemsOf({ thinking, texts, tools }: MockCompletion): OutputItem[] {
  const summary = [{ type: 'summary_text', text: thinking.join('') }];
  const reasoning: OutputItem = {
    item: { id: 'rs_mock', type: 'reasoning', summary, encrypted_content: 'gAAAAmock' },
    sendContents: (send, itemIds) => sendThinking(send, itemIds, thinking),
  };
  const content = { type: 'output_text', text: texts.join(''), annotations: [], logprobs: [] };
  const message: OutputItem = {
    item: { id: 'msg_mock', type: 'message', status: 'completed', role: 'assistant', content: [content] },
    sendContents: (send, itemIds) => sendTexts(send, itemIds, content, texts),
  };
  const calls = tools.map(({ id, name, pieces }): OutputItem => {
    const call = { name, arguments: pieces.join('') };
    return {
      item: { id: `fc_${id}`, type: 'function_call', status: 'completed', call_id: id, ...call },
      sendContents: (send, itemIds) => sendArguments(send, itemIds, call, pieces),
    };
  });
  return [...(thinking.length === 0 ? [] : [reasoning]), message, ...calls];
}

/** Reasons of a response that ends `incomplete`. With any other `finish` it is `completed`. */
const INCOMPLETE: Readonly<Partial<Record<MockCompletion['finish'], string>>> = {
  length: 'max_output_tokens',
  content_filter: 'content_filter',
};

/** `as`: how an event shows the response: as it was when the call began, or as it is at its end. */
function responseOf(
  { request, usage, finish }: MockCompletion,
  items: readonly OutputItem[],
  as: 'begun' | 'ended',
): object {
  const isEnded = as === 'ended';
  const reason = isEnded ? INCOMPLETE[finish] : undefined;
  return {
    id: ID,
    object: 'response',
    created_at: CREATED_SECONDS,
    status: !isEnded ? 'in_progress' : reason === undefined ? 'completed' : 'incomplete',
    error: null,
    incomplete_details: reason === undefined ? null : { reason },
    instructions: null,
    model: request.model,
    output: items.map(({ item }) => item),
    parallel_tool_calls: true,
    previous_response_id: null,
    store: true,
    temperature: 1,
    text: { format: { type: 'text' } },
    tool_choice: 'auto',
    tools: [],
    top_p: 1,
    truncation: 'disabled',
    usage:
      !isEnded || usage === undefined
        ? null
        : {
            input_tokens: usage.prompt,
            input_tokens_details: { cached_tokens: usage.cached, cache_write_tokens: usage.written },
            output_tokens: usage.completion,
            output_tokens_details: { reasoning_tokens: usage.reasoning },
            total_tokens: usage.prompt + usage.completion,
          },
    metadata: {},
  };
}

function sendThinking(send: Send, itemIds: object, thinking: readonly string[]): void {
  const part = { ...itemIds, summary_index: 0 };
  const text = thinking.join('');
  send('response.reasoning_summary_part.added', { ...part, part: { type: 'summary_text', text: '' } });
  for (const delta of thinking) send('response.reasoning_summary_text.delta', { ...part, delta });
  send('response.reasoning_summary_text.done', { ...part, text });
  send('response.reasoning_summary_part.done', { ...part, part: { type: 'summary_text', text } });
}

function sendTexts(
  send: Send,
  itemIds: object,
  content: { readonly text: string },
  texts: readonly string[],
): void {
  const part = { ...itemIds, content_index: 0 };
  send('response.content_part.added', { ...part, part: { ...content, text: '' } });
  for (const delta of texts) send('response.output_text.delta', { ...part, delta, logprobs: [] });
  send('response.output_text.done', { ...part, text: content.text, logprobs: [] });
  send('response.content_part.done', { ...part, part: content });
}

function sendArguments(
  send: Send,
  itemIds: object,
  call: { readonly name: string; readonly arguments: string },
  pieces: readonly string[],
): void {
  for (const delta of pieces) send('response.function_call_arguments.delta', { ...itemIds, delta });
  send('response.function_call_arguments.done', { ...itemIds, ...call });
}

function frames(completion: MockCompletion): Uint8Array[] {
  const events: Uint8Array[] = [];
  const send: Send = (type, members) => {
    events.push(sseFrame(JSON.stringify({ type, sequence_number: events.length, ...members }), type));
  };
  const response = responseOf(completion, [], 'begun');
  send('response.created', { response });
  send('response.in_progress', { response });
  const items = itemsOf(completion);
  items.forEach(({ item, sendContents }, index) => {
    const itemIds = { item_id: item.id, output_index: index };
    // An item begins with these values of its members. Deltas and `output_item.done` bring the others.
    const firstValues: Members = { summary: [], content: [], arguments: '', status: 'in_progress' };
    const itemAtStart = Object.fromEntries(
      Object.entries(item).map(([name, value]) => [name, firstValues[name] ?? value]),
    );
    send('response.output_item.added', { output_index: index, item: itemAtStart });
    sendContents(send, itemIds);
    send('response.output_item.done', { output_index: index, item });
  });
  const isCut = INCOMPLETE[completion.finish] !== undefined;
  send(isCut ? 'response.incomplete' : 'response.completed', {
    response: responseOf(completion, items, 'ended'),
  });
  return events;
}

export const RESPONSES_MOCK: MockProtocol = {
  streamType: 'text/event-stream; charset=utf-8',
  read,
  whole: (completion) => JSON.stringify(responseOf(completion, itemsOf(completion), 'ended')),
  frames,
  error: (status, message) => ({ status, error: errorText(message, 'mock_error') }),
  errorFrame(_status, message, _request, framesBefore) {
    const members = { code: 'server_error', message, param: null, sequence_number: framesBefore };
    return sseFrame(JSON.stringify({ type: 'error', ...members }), 'error');
  },
  broken: brokenSse,
};
