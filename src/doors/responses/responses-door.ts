/**
 * The door of OpenAI's Responses API, as listeners see it: its route, how its bodies are read, and its
 * errors. responses-dialect.ts is its other half. Listener thread and counter pool.
 */
import { DOOR_PATHS } from '../../core/door-names.js';
import { ERROR_KINDS, type ErrorRecord } from '../../core/errors.js';
import { jsonText } from '../../core/json.js';
import { checkResponsesRequest } from '../../protocol/validators.js';
import { OPENAI_ERRORS } from '../chat/chat-door.js';
import type { Door } from '../door.js';
import { readersOf } from '../member-scan.js';
import { RESPONSES_REQUEST } from './responses-names.js';
import { explainResponsesRequest } from './responses-rules.js';

/** Clients order events by it. How many came before, a listener does not know. */
const LAST_SEQUENCE_NUMBER = 2_147_483_647;

/**
 * The event that ends a stream in the form of the reference, and with `error` as in a chat completion: the
 * published clients (TypeScript, Python) raise an error for that member alone.
 */
function errorEvent({ code, message }: ErrorRecord): string {
  const event = {
    type: 'error',
    sequence_number: LAST_SEQUENCE_NUMBER,
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
  choices: () => 1,
  asksForUsage: false,
});

export const RESPONSES: Door = {
  name: 'responses',
  path: DOOR_PATHS.responses,
  errors: { ...OPENAI_ERRORS, event: errorEvent },
  read,
  readPieces,
  headerLines: () => '',
};
