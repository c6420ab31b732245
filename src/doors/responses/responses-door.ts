/**
 * The door of OpenAI's Responses API, the half for listeners: its route, how its bodies are read, and its
 * errors. doors.ts has it in its table; responses-dialect.ts is the other half. Listener thread and counter
 * threads.
 *
 * Must hold: an error event goes on with the numbers of the stream, and OpenAI's client raises it
 * (test/unit/doors/responses/responses-door.test.ts).
 */
import { DOOR_PATHS } from '../../core/door-names.js';
import { ERROR_KINDS, type ErrorRecord } from '../../core/errors.js';
import { jsonText } from '../../core/json.js';
import { Level, plain } from '../../protocol/known-members.js';
import { checkResponsesRequest } from '../../protocol/validators.js';
import { OPENAI_ERRORS } from '../chat/chat-door.js';
import type { Door } from '../door.js';
import { readersOf } from '../member-scan.js';
import { explainResponsesRequest, routingIn } from './responses-rules.js';

/** Types of parts that are text. Without a type are the results of a shell. */
const TEXT_TYPES = ['input_text', 'output_text', 'text', 'refusal', 'summary_text', 'reasoning_text', ''];

const PART = new Level(
  {
    ...plain('type', 'text', 'refusal', 'annotations', 'logprobs', 'prompt_cache_breakpoint'),
    ...plain('image_url', 'detail', 'file_id', 'file_data', 'file_url', 'filename', 'input_audio'),
  },
  { image_url: 'storage_url', file_id: 'file_id', file_data: 'storage_url', file_url: 'storage_url' },
  TEXT_TYPES,
);

const ITEM = new Level({
  ...plain('type', 'role', 'id', 'status', 'phase', 'call_id', 'name', 'arguments', 'input'),
  ...plain('encrypted_content'),
  content: PART,
  output: PART,
  summary: PART,
});

const TOOL = new Level({
  ...plain('type', 'name', 'description', 'parameters', 'strict', 'format', 'server_url', 'container'),
  ...plain('model', 'connector_id', 'authorization', 'headers', 'vector_store_ids', 'tools'),
});

/**
 * The known member names of a request, as protocol/known-members.ts has those of a chat completion: a name
 * that differs only in case is rejected, because decoders that fold case would read another request than the
 * one that was admitted. `service_tier` must not be here: names that are here are not checked for routing
 * (core/routing-members.ts).
 */
const RESPONSES_REQUEST = new Level({
  ...plain('model', 'instructions', 'max_output_tokens', 'temperature', 'top_p', 'top_logprobs'),
  ...plain('stream', 'stream_options', 'store', 'background', 'previous_response_id', 'conversation'),
  ...plain('prompt', 'parallel_tool_calls', 'max_tool_calls', 'truncation', 'include', 'metadata', 'user'),
  ...plain('safety_identifier', 'prompt_cache_key', 'prompt_cache_retention', 'prompt_cache_options'),
  ...plain('context_management', 'moderation'),
  input: ITEM,
  tools: TOOL,
  tool_choice: new Level(plain('type', 'name', 'mode', 'tools', 'server_label')),
  text: new Level({
    ...plain('verbosity'),
    format: new Level(plain('type', 'name', 'description', 'schema', 'strict')),
  }),
  reasoning: new Level(plain('effort', 'summary', 'generate_summary', 'context', 'mode')),
});

/**
 * The least `max_output_tokens` that OpenAI accepts: a bound for accounts with little money is not lowered
 * further. A caller who asks for less gets OpenAI's own 400.
 */
const OUTPUT_TOKENS_MIN_AT_OPENAI = 16;

const NUMBER_NAME = '"sequence_number":';
/** The value of `sequence_number`: digits, and the character that ends them. */
const NUMBER_VALUE = /^\s*(\d{1,15})\s*[,}]/;
const VALUE_BYTES_MAX = 32;

/**
 * Returns the last `sequence_number` in a frame; undefined if it has none. Text of the model cannot match
 * NUMBER_NAME, because quotes in it have backslashes.
 */
function numberIn(frame: Uint8Array): number | undefined {
  const bytes = Buffer.from(frame.buffer, frame.byteOffset, frame.length);
  const at = bytes.lastIndexOf(NUMBER_NAME);
  if (at < 0) return undefined;
  const start = at + NUMBER_NAME.length;
  const found = NUMBER_VALUE.exec(bytes.toString('latin1', start, start + VALUE_BYTES_MAX));
  return found === null ? undefined : Number(found[1]);
}

/**
 * The event that ends a stream, in the form of the reference, and with a member `error` as in a chat
 * completion: OpenAI's client libraries (TypeScript, Python) raise an error for that member alone.
 */
function errorEvent({ code, message }: ErrorRecord, _requestId: string, number = 0): string {
  const event = {
    type: 'error',
    sequence_number: number,
    code,
    message,
    param: null,
    error: { type: ERROR_KINDS[code].type, code, message, param: null },
  };
  return `event: error\ndata: ${jsonText(event)}\n\n`;
}

const { read, readPieces } = readersOf({
  level: RESPONSES_REQUEST,
  check: checkResponsesRequest,
  explain: explainResponsesRequest,
  outputTokens: 'max_output_tokens',
  outputTokensMin: () => OUTPUT_TOKENS_MIN_AT_OPENAI,
  choices: () => 1,
  asksForUsage: false,
  routing: routingIn,
});

export const RESPONSES: Door = {
  name: 'responses',
  path: DOOR_PATHS.responses,
  errors: { ...OPENAI_ERRORS, event: errorEvent, numberIn },
  read,
  readPieces,
  headerLines: () => '',
};
