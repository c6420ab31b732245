/** The document of the public interface is served to anybody, and is true of what the gateway answers. */
import t from 'tap';
import { Check } from 'typebox/schema';
import { DOORS } from '#src/doors/doors.js';
import { startBed } from '../support/bed.js';
import { HIDDEN_MODEL, TEST_MODEL } from '../support/gateway.js';
import { request } from '../support/http.js';
import { eventData } from '../support/sse.js';

interface Document {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, object>>;
  readonly components: { readonly schemas: Readonly<Record<string, object>> };
}

void t.test('GET /openapi.json', async (t) => {
  const { gateway } = await startBed(t);
  const answer = await request({ port: gateway.port, path: '/openapi.json' });
  t.equal(answer.status, 200);
  t.equal(answer.headers['content-type'], 'application/json');
  t.ok(answer.headers['x-request-id']);
  const { openapi, paths, components } = answer.json() as Document;
  t.equal(openapi, '3.1.0');
  const served = [...DOORS.map(({ path }) => path), '/v1/models', '/v1/models/{model}'];
  t.same(Object.keys(paths), served);
  const post = await request({ port: gateway.port, path: '/openapi.json', body: {} });
  t.equal(post.status, 405);
  t.equal(post.headers.allow, 'GET, HEAD');

  const { key } = await gateway.admin.customer();
  const matches = (schema: string, value: unknown, name = schema): void => {
    t.ok(Check(components.schemas[schema]!, value), `${name} matches ${schema}`);
    t.notOk(Check(components.schemas[schema]!, { other: 1 }), `${schema} does not match everything`);
  };
  matches('ChatCompletion', (await gateway.chat(key, 'hello')).json());
  matches('ModelList', (await gateway.request(key, { path: '/v1/models' })).json());
  matches('Model', (await gateway.request(key, { path: `/v1/models/${TEST_MODEL}` })).json());
  const stream = await gateway.chat(key, 'hello', { stream: true, stream_options: { include_usage: true } });
  const events = eventData(stream.body).filter((data) => data !== '[DONE]');
  t.ok(events.length > 1);
  for (const data of events) matches('ChatCompletionChunk', JSON.parse(data));
  for (const refused of [
    await gateway.chat('sk-none', 'hello'),
    await gateway.chat(key, 'hello', { temperature: 3 }),
    await gateway.chat(key, 'hello', { model: 'none' }),
    await gateway.request(key, { path: '/v1/models/none' }),
  ]) {
    matches('Error', refused.json(), String(refused.status));
  }
  const body = (more: object): object => ({
    model: HIDDEN_MODEL,
    messages: [{ role: 'user', content: 'x' }],
    ...more,
  });
  const requestSchema = components.schemas.ChatRequest!;
  t.ok(Check(requestSchema, body({ temperature: 2, tools: [] })));
  t.notOk(Check(requestSchema, body({ temperature: 2.1 })));
  t.notOk(Check(requestSchema, body({ max_tokens: -1 })));
  t.equal(await gateway.stop(), 0);
});
