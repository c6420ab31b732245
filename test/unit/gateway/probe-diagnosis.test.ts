/** What each provider's words for an unknown model, and for a wrong address, are told as. */
import t from 'tap';
import { DOOR_PATHS, SERVICES } from '#src/core/door-names.js';
import { diagnosisOf } from '#src/gateway/probe-diagnosis.js';
import { targetOf } from '../../fixtures/upstream-server.js';

/** The advice for an error of that body. */
function adviceOf(status: number, body: unknown, target = targetOf('http://127.0.0.1:1')): string {
  const reply = { status, contentType: 'application/json', location: undefined, isCut: false };
  const diagnosis = diagnosisOf(target, 'm', 'chat', {
    kind: 'response',
    ...reply,
    body: JSON.stringify(body),
  });
  return `${diagnosis.result}: ${diagnosis.advice}`;
}

void t.test('an unknown model, as each provider says it', (t) => {
  const replies: readonly (readonly [provider: string, status: number, body: object])[] = [
    ['OpenAI', 404, { error: { message: 'It does not exist.', code: 'model_not_found' } }],
    ['Mistral', 400, { object: 'error', message: 'Invalid: m', type: 'invalid_model', code: 1500 }],
    ['Azure', 404, { error: { code: 'DeploymentNotFound', message: 'The deployment is not there.' } }],
    ['Anthropic', 404, { type: 'error', error: { type: 'not_found_error', message: 'model: m' } }],
    ['Gemini', 404, { error: { code: 404, message: 'models/m is not found for API version v1beta' } }],
    ['Vertex', 404, { error: { code: 404, message: 'Publisher Model `p/m` was not found' } }],
    ['Bedrock', 400, { message: 'The provided model identifier is invalid.' }],
    ['Ollama', 404, { error: { message: 'model "m" not found, try pulling it first' } }],
  ];
  for (const [provider, status, body] of replies)
    t.match(adviceOf(status, body), /the provider does not know the model m: set model:/, provider);
  t.end();
});

void t.test('a wrong address, and a request that is refused, are no unknown model', (t) => {
  for (const body of [
    { type: 'error', error: { type: 'not_found_error', message: 'Not found' } },
    { error: { message: 'no such path' } },
    { message: 'not found' },
    {},
  ])
    t.match(adviceOf(404, body), /there is no API for chat completions at/, JSON.stringify(body));
  t.match(adviceOf(400, { message: 'max_tokens is too large' }), /max_tokens is too large: it refuses/);
  t.end();
});

void t.test('a url with the path of any call in it: the advice names the base address', (t) => {
  for (const service of SERVICES)
    for (const path of Object.values(DOOR_PATHS)) {
      const called = DOOR_PATHS[service].slice('/v1'.length);
      const target = targetOf('http://127.0.0.1:1', { path: `/proxy${path}${called}` });
      const reply = { status: 404, contentType: 'text/plain', location: undefined, isCut: false, body: '' };
      const { advice } = diagnosisOf(target, 'm', service, { kind: 'response', ...reply });
      t.match(advice, /: set it to http:\/\/127\.0\.0\.1:1\/proxy\/v1$/, `${service} at ${path}`);
      t.match(advice, `url ends with ${path.slice('/v1'.length)}, `, `${service} at ${path}`);
    }
  t.end();
});

void t.test('a refused key is looked for where the settings have it', (t) => {
  const origin = 'http://127.0.0.1:1';
  const settings: readonly (readonly [Parameters<typeof targetOf>[1], RegExp])[] = [
    [{ key: undefined, headers: {} }, /it wants a key and none is set/],
    [{ key: 'sk-1', headers: { 'x-team': 'a' } }, /it refuses the key: see that key or key_file is/],
    [{ key: undefined, headers: { Authorization: 'Bearer x' } }, /see that the header Authorization is/],
    [{ key: undefined, headers: { 'api-key': 'x' } }, /see that the header api-key is/],
  ];
  for (const [changes, advice] of settings)
    for (const status of [401, 403]) t.match(adviceOf(status, {}, targetOf(origin, changes)), advice);
  t.end();
});

void t.test('what was not reached is told so, whoever gave up', (t) => {
  const target = targetOf('http://127.0.0.1:1');
  for (const code of ['EHOSTUNREACH', 'ENETUNREACH', 'ETIMEDOUT', 'TIMEOUT_CONNECT'])
    t.match(
      diagnosisOf(target, 'm', 'chat', { kind: 'error', code, message: code }).advice,
      /127\.0\.0\.1:1 cannot be reached from here/,
      code,
    );
  t.end();
});

void t.test('a model that thinks beyond the bound of a probe is well', (t) => {
  const message =
    'Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens.';
  const diagnosis = diagnosisOf(targetOf('http://127.0.0.1:1'), 'm', 'chat', {
    kind: 'response',
    status: 400,
    contentType: 'application/json',
    location: undefined,
    isCut: false,
    body: JSON.stringify({ error: { message, type: 'invalid_request_error' } }),
  });
  t.match(diagnosis, { ok: true, advice: null, answeredModel: null, usageReported: null });
  t.end();
});
