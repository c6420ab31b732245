/** Errors of Google's APIs in words of OpenAI's interface, and what of them no caller may see. */
import t from 'tap';
import { readError } from '#src/providers/gemini/errors.js';

const none = (): undefined => undefined;
const rpc = (code: number, status: string, message: string, details: object[] = []): string =>
  JSON.stringify({ error: { code, message, status, details } });
const retry = (retryDelay: string): object => ({
  '@type': 'type.googleapis.com/google.rpc.RetryInfo',
  retryDelay,
});
const reason = (name: string): object => ({
  '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
  reason: name,
});

const ERRORS: [name: string, status: number, body: string, failure: object][] = [
  [
    'a wrong request',
    400,
    rpc(400, 'INVALID_ARGUMENT', 'Invalid value at temperature'),
    { status: 400, message: 'Invalid value at temperature' },
  ],
  [
    'a prompt that is too long',
    400,
    rpc(
      400,
      'INVALID_ARGUMENT',
      'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).',
    ),
    { status: 400, code: 'context_length_exceeded' },
  ],
  [
    'a wrong key, which is a 400 there',
    400,
    rpc(400, 'INVALID_ARGUMENT', 'API key not valid. Please pass a valid API key.', [
      reason('API_KEY_INVALID'),
    ]),
    { status: 401 },
  ],
  [
    'a wrong key by its text',
    400,
    rpc(400, 'INVALID_ARGUMENT', 'API key expired. Renew it.'),
    { status: 401 },
  ],
  [
    'a country that Google does not serve',
    400,
    rpc(400, 'FAILED_PRECONDITION', 'User location is not supported for the API use.'),
    { status: 403 },
  ],
  [
    'an account without billing',
    400,
    rpc(400, 'FAILED_PRECONDITION', 'Please enable billing on project in Google AI Studio.'),
    { status: 403 },
  ],
  ['another precondition', 400, rpc(400, 'FAILED_PRECONDITION', 'Cache is gone.'), { status: 400 }],
  ['no credentials', 401, rpc(401, 'UNAUTHENTICATED', 'no token'), { status: 401 }],
  ['no permission', 403, rpc(403, 'PERMISSION_DENIED', 'denied'), { status: 403 }],
  [
    'no such model',
    404,
    rpc(404, 'NOT_FOUND', 'models/x is not found'),
    { status: 404, code: 'model_not_found' },
  ],
  ['too large', 413, '<html>', { status: 413 }],
  [
    'a limit, with its delay',
    429,
    rpc(429, 'RESOURCE_EXHAUSTED', 'quota', [reason('RATE_LIMIT_EXCEEDED'), retry('34.400544735s')]),
    { status: 429, retryAfterSeconds: 35 },
  ],
  ['a delay of nonsense', 429, rpc(429, 'RESOURCE_EXHAUSTED', 'quota', [retry('soon')]), { status: 429 }],
  ['overloaded', 503, rpc(503, 'UNAVAILABLE', 'The model is overloaded.'), { status: 503 }],
  ['too slow', 504, rpc(504, 'DEADLINE_EXCEEDED', 'slow'), { status: 500 }],
  ['an error of theirs', 500, rpc(500, 'INTERNAL', 'oops'), { status: 500, message: 'oops' }],
  [
    'in a list',
    429,
    `[${rpc(429, 'RESOURCE_EXHAUSTED', 'q', [retry('2s')])}]`,
    { status: 429, retryAfterSeconds: 2 },
  ],
  ['a page', 502, '<html>bad gateway', { status: 500, message: 'the provider gave no reason' }],
  ['nothing', 400, '', { status: 400, message: 'the provider gave no reason' }],
  ['an error of another kind', 400, '{"error":"no"}', { status: 400 }],
];

for (const [name, status, body, failure] of ERRORS)
  void t.test(name, (t) => {
    const read = readError(status, none, body);
    t.match(read, failure);
    if (!('retryAfterSeconds' in failure)) t.equal(read.retryAfterSeconds, undefined);
    t.end();
  });

const SECRETS: [message: string, shown: string][] = [
  [
    'Publisher Model `projects/my-secret-1/locations/us-central1/publishers/google/models/x` was not found',
    'Publisher Model `projects/…/locations/us-central1/publishers/google/models/x` was not found',
  ],
  ['Permission denied on resource project acme.', 'Permission denied on resource project ….'],
  ['Quota exceeded for consumer project_number:123456789.', 'Quota exceeded for consumer project_number ….'],
  ['API has not been used in project 123456789 before', 'API has not been used in project … before'],
  ['robot@my-secret-1.iam.gserviceaccount.com lacks access', '… lacks access'],
  [
    'see https://console.google.com/apis?project=my-secret-1 for it',
    'see https://console.google.com/apis?project=… for it',
  ],
  ['this project is fine', 'this project is fine'],
];

for (const [message, shown] of SECRETS)
  void t.test(`secrets: ${shown}`, (t) => {
    t.equal(readError(400, none, rpc(400, 'INVALID_ARGUMENT', message)).message, shown);
    t.end();
  });

void t.test('a long text is cleaned and understood in bounded time', (t) => {
  for (const unit of ['a', 'a.', 'token count ', 'exceeds the maximum ', 'project ', 'a@b.']) {
    const message = unit.repeat((1024 * 1024) / unit.length);
    const startMs = performance.now();
    t.match(readError(400, none, rpc(400, 'INVALID_ARGUMENT', message)), { status: 400 });
    const tookMs = performance.now() - startMs;
    // 15 to 60 ms, or a second on a busy machine. If the time grew with the square, it would be minutes.
    t.ok(tookMs < 10_000, `${unit}: ${Math.round(tookMs)} ms`);
  }
  const account = `${'a'.repeat(1_000)}@ours-1.iam.gserviceaccount.com`;
  t.equal(readError(400, none, rpc(400, '', `Is ${account} allowed?`)).message, 'Is … allowed?');
  t.end();
});
