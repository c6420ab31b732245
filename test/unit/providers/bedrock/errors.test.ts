/** Bedrock's errors in words of OpenAI's interface, without the operator's names. */
import t from 'tap';
import { readError } from '#src/providers/bedrock/errors.js';
import type { ProviderFailure } from '#src/providers/provider.js';

function failure(status: number, name: string | undefined, body: unknown): ProviderFailure {
  const headers: Record<string, string | undefined> = { 'x-amzn-errortype': name };
  return readError(
    status,
    (header) => headers[header],
    typeof body === 'string' ? body : JSON.stringify(body),
  );
}

void t.test('statuses by the name of the exception', (t) => {
  for (const [sent, name, status, code] of [
    [400, 'ValidationException', 400, undefined],
    [403, 'AccessDeniedException', 403, undefined],
    [403, 'ExpiredTokenException', 403, undefined],
    [403, 'UnrecognizedClientException', 403, undefined],
    [404, 'ResourceNotFoundException', 404, 'model_not_found'],
    [429, 'ThrottlingException', 429, undefined],
    [400, 'ThrottlingException', 429, undefined],
    [400, 'ServiceQuotaExceededException', 429, undefined],
    [408, 'ModelTimeoutException', 500, undefined],
    [424, 'ModelErrorException', 500, undefined],
    [429, 'ModelNotReadyException', 503, undefined],
    [500, 'InternalServerException', 500, undefined],
    [503, 'ServiceUnavailableException', 503, undefined],
    [413, undefined, 413, undefined],
    [409, 'ConflictException', 500, undefined],
    [504, undefined, 504, undefined],
  ] as const) {
    const found = failure(sent, name, { message: 'why' });
    t.same([found.status, found.code, found.message], [status, code, 'why'], name ?? String(sent));
  }
  t.end();
});

void t.test('the name is in a header or in the body, with what is around it', (t) => {
  const url = 'ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/';
  t.equal(failure(400, url, {}).status, 429);
  t.equal(failure(400, undefined, { __type: 'com.amazon.coral.service#ThrottlingException' }).status, 429);
  t.match(failure(403, undefined, { Message: 'no' }), { status: 403, message: 'no' });
  for (const body of ['', '<html>', '[1]', 'null', '{"message":5}']) {
    t.match(failure(502, undefined, body), { status: 502, message: 'Bedrock answered with status 502' });
  }
  t.end();
});

void t.test('a prompt that is too long, and a model that is not there', (t) => {
  for (const message of [
    'Input is too long for requested model.',
    'The model returned the following errors: prompt is too long: 210000 tokens > 200000 maximum',
    'Too many input tokens. Max input tokens: 8192, request input token count: 9000',
    "This model's maximum context length is 8192 tokens. Please reduce the length of the prompt",
    'The model returned the following errors: input length and `max_tokens` exceed context limit: 1 + 2 > 200000',
    'Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.',
  ]) {
    const found = failure(400, 'ValidationException', { message });
    t.same([found.status, found.code], [400, 'context_length_exceeded'], message);
  }
  for (const message of [
    'The provided model identifier is invalid.',
    'Invocation of model ID anthropic.x with on-demand throughput isn’t supported. Retry your request with the ID or ARN of an inference profile that contains this model.',
  ]) {
    const found = failure(400, 'ValidationException', { message });
    t.same([found.status, found.code], [404, 'model_not_found'], message);
  }
  const other = failure(400, 'ValidationException', { message: 'temperature: range: 0..1' });
  t.same([other.status, other.code], [400, undefined]);
  t.end();
});

void t.test("messages do not name the operator's resources", (t) => {
  const { message } = failure(403, 'AccessDeniedException', {
    message:
      'User: arn:aws:sts::123456789012:assumed-role/prod-gateway/i-0abc is not authorized to perform: bedrock:InvokeModel on resource: arn:aws-us-gov:bedrock:us-gov-west-1::foundation-model/anthropic.claude-3-haiku-20240307-v1:0 in account 123456789012 with key AKIAIOSFODNN7EXAMPLE',
  });
  t.equal(
    message,
    'User: a resource is not authorized to perform: bedrock:InvokeModel on resource: a resource in account an account with key a key',
  );
  t.end();
});

void t.test('a long name of an exception is read in bounded time', (t) => {
  const startMs = performance.now();
  const long = `${'a'.repeat(1024 * 1024)}#ThrottlingException`;
  t.equal(failure(400, long, { message: 'why' }).status, 429);
  t.equal(failure(400, undefined, { __type: `${long}#`, message: 'why' }).status, 400);
  const tookMs = performance.now() - startMs;
  t.ok(tookMs < 1_000, `${Math.round(tookMs)} ms`);
  t.end();
});
