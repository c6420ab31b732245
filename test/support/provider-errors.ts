/**
 * Errors of providers as their references show them: the body of a response with an error's status, and the
 * event or frame of a stream.
 */
import { ANTHROPIC, awsFrame, BEDROCK, GEMINI, type Dialect } from './provider-dialects.js';

export interface ErrorForms {
  /** The statuses that the reference names, each with the provider's word for it. */
  readonly words: Readonly<Record<number, string>>;
  body(status: number, message: string): string;
  /** In a stream; `status`: one of `words`. */
  frame(status: number, message: string): Buffer;
  /** Names its type, if that is not in the body. */
  headers(status: number): Readonly<Record<string, string>>;
}

const sse = (data: string, name?: string): Buffer =>
  Buffer.from(`${name === undefined ? '' : `event: ${name}\n`}data: ${data}\n\n`);

/** https://docs.anthropic.com/en/api/errors */
const ofAnthropic: ErrorForms = {
  words: {
    400: 'invalid_request_error',
    401: 'authentication_error',
    403: 'permission_error',
    404: 'not_found_error',
    413: 'request_too_large',
    429: 'rate_limit_error',
    500: 'api_error',
    529: 'overloaded_error',
  },
  body: (status, message) =>
    JSON.stringify({
      type: 'error',
      error: { type: ofAnthropic.words[status] ?? 'api_error', message },
      request_id: 'req_011CSHoEeqs5C35K2UUqR7Fy',
    }),
  frame: (status, message) => sse(ofAnthropic.body(status, message), 'error'),
  headers: () => ({}),
};

/** https://ai.google.dev/gemini-api/docs/troubleshooting */
const ofGemini: ErrorForms = {
  words: {
    400: 'INVALID_ARGUMENT',
    401: 'UNAUTHENTICATED',
    403: 'PERMISSION_DENIED',
    404: 'NOT_FOUND',
    429: 'RESOURCE_EXHAUSTED',
    500: 'INTERNAL',
    503: 'UNAVAILABLE',
    504: 'DEADLINE_EXCEEDED',
  },
  body: (status, message) =>
    JSON.stringify({ error: { code: status, message, status: ofGemini.words[status] ?? 'UNKNOWN' } }),
  frame: (status, message) => sse(ofGemini.body(status, message)),
  headers: () => ({}),
};

/** https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html */
const ofBedrock: ErrorForms = {
  words: {
    400: 'ValidationException',
    403: 'AccessDeniedException',
    404: 'ResourceNotFoundException',
    408: 'ModelTimeoutException',
    424: 'ModelErrorException',
    429: 'ThrottlingException',
    500: 'InternalServerException',
    503: 'ServiceUnavailableException',
  },
  body: (_, message) => JSON.stringify({ message }),
  frame: (status, message) => {
    const word = ofBedrock.words[status] ?? 'InternalServerException';
    const type = word.charAt(0).toLowerCase() + word.slice(1);
    return awsFrame(
      { ':exception-type': type, ':content-type': 'application/json', ':message-type': 'exception' },
      JSON.stringify({ message }),
    );
  },
  headers: (status): Record<string, string> => {
    const word = ofBedrock.words[status];
    return word === undefined ? {} : { 'x-amzn-errortype': word };
  },
};

export const ERROR_FORMS: ReadonlyMap<Dialect, ErrorForms> = new Map([
  [ANTHROPIC, ofAnthropic],
  [GEMINI, ofGemini],
  [BEDROCK, ofBedrock],
]);
