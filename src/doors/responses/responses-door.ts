/**
 * The door of OpenAI's Responses API, the half for listeners: its route, how its bodies are read, and its
 * errors. doors.ts has it in its table; responses-dialect.ts is the other half. Listener thread and counter
 * pool.
 */
import { DOOR_PATHS } from '../../core/door-names.js';
import { ERROR_KINDS, type ErrorRecord } from '../../core/errors.js';
import { jsonText } from '../../core/json.js';
import { checkResponsesRequest } from '../../protocol/validators.js';
import { OPENAI_ERRORS } from '../chat/chat-door.js';
import type { Door } from '../door.js';
import { readersOf } from '../member-scan.js';
import { RESPONSES_REQUEST } from './responses-names.js';
import { explainResponsesRequest, routingIn } from './responses-rules.js';

/**
 * The least `max_output_tokens` that OpenAI accepts: a bound for accounts with little money is not lowered
 * further. A caller who asks for less gets OpenAI's own 400.
 */
const OUTPUT_TOKENS_MIN_AT_OPENAI = 16;

const NUMBER = '"sequence_number":';
/** The value of `sequence_number`: digits, and the character that ends them. */
const VALUE = /^\s*(\d{1,15})\s*[,}]/;
const VALUE_BYTES_MAX = 32;

/** As ErrorShape.numberIn. Text of the model cannot match NUMBER: within it the quotes have backslashes. */
function numberIn(frame: Uint8Array): number | undefined {
  const bytes = Buffer.from(frame.buffer, frame.byteOffset, frame.length);
  const at = bytes.lastIndexOf(NUMBER);
  if (at < 0) return undefined;
  const start = at + NUMBER.length;
  const found = VALUE.exec(bytes.toString('latin1', start, start + VALUE_BYTES_MAX));
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
