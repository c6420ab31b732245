/**
 * Azure through the gateway: its paths, versions and header, what its content filter says, its errors, and
 * the test of upstreams. Bytes pass as they are.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { runCommand } from '../support/command.js';
import { startGateway, temporaryFolder, TEST_PRICE } from '../support/gateway.js';
import { startMock, steered } from '../support/mock.js';
import { chunksOf, eventData, isWholeText, textOf } from '../support/sse.js';

const SECRET = 'azure-secret-0123456789';

void t.test('azure', async (t) => {
  const mock = await startMock(t, ['--provider', 'azure', '--chunks', '5']);
  const folder = temporaryFolder(t);
  const model = (id: string, upstream: object): object => ({
    id,
    owned_by: 'openai',
    price: TEST_PRICE,
    max_output_tokens: 1_000,
    upstreams: [
      { provider: 'azure', url: mock.origin, key: '${AZURE_KEY}', model: 'my_deployment', ...upstream },
    ],
  });
  const models = [
    model('dated', {}),
    model('other', { api_version: '2025-01-01-preview', url: `${mock.origin}/` }),
    model('v1', { api_version: 'v1' }),
    model('preview', { api_version: 'preview' }),
    model('missing', { model: 'missing' }),
    model('token', { key: undefined, headers: { authorization: 'Bearer ${AZURE_KEY}' } }),
    model('keyless', { key: undefined, headers: { 'x-token': '${AZURE_KEY}' } }),
  ];
  const plans = [{ id: 'ample', requests_per_minute: 1_000, calls_per_day: 1_000 }];
  const config = { models, plans };
  const gateway = await startGateway(t, { folder, config, env: { AZURE_KEY: SECRET } });
  const { key } = await gateway.admin.customer();
  const ask = (model: string, content = 'Hello', more: object = {}) =>
    gateway.chat(key, content, { model, ...more });
  const lastHeaders = async () => (await mock.stats()).last!.headers;

  await t.test('each version has its path; the key goes in its own header', async (t) => {
    for (const model of ['dated', 'other', 'v1', 'preview']) {
      const answer = await ask(model);
      t.equal(answer.status, 200, `${model}: ${answer.body}`);
      t.match(answer.json(), { prompt_filter_results: [{}], usage: { prompt_tokens: 2 } });
      const headers = await lastHeaders();
      t.equal(headers['api-key'], SECRET);
      t.equal(headers.authorization, undefined);
    }
    t.equal((await ask('token')).status, 200);
    t.equal((await lastHeaders()).authorization, `Bearer ${SECRET}`);
  });

  await t.test('the body passes byte for byte but for the name of the model', async (t) => {
    const { body } = await ask('v1', steered('echo=1'), { logit_bias: { '1': 2.5 }, metadata: { a: 'b' } });
    const [choice] = (JSON.parse(body) as { choices: { message: { content: string } }[] }).choices;
    const asked = JSON.parse(choice!.message.content) as { body: string };
    const seen = JSON.parse(asked.body) as object;
    t.match(seen, { model: 'my_deployment', logit_bias: { '1': 2.5 }, metadata: { a: 'b' } });
  });

  await t.test('a stream begins with the filter of the prompt, without a choice', async (t) => {
    const answer = await ask('dated', 'Hello', { stream: true, stream_options: { include_usage: true } });
    t.match(JSON.parse(eventData(answer.body)[0]!), { choices: [], prompt_filter_results: [{}] });
    const chunks = chunksOf(answer.body);
    t.ok(isWholeText(textOf(chunks), 5));
    t.match(chunks.at(-1), { usage: { prompt_tokens: 2 } });
    t.equal(eventData(answer.body).at(-1), '[DONE]');
    const cut = await ask('dated', steered('fault=error-event'), { stream: true });
    t.match(cut.body, /provider_unavailable/);
  });

  await t.test('errors', async (t) => {
    const filtered = await ask('dated', steered('status=400'));
    t.equal(filtered.status, 400);
    t.match(filtered.json(), { error: { code: 'invalid_parameters', message: 'the mock was told to fail' } });
    t.equal((await ask('missing')).status, 502);
    t.equal((await ask('keyless')).status, 502);
    const limited = await ask('dated', steered('status=429&retry_after=1'));
    t.equal(limited.status, 502);
    t.equal(limited.headers['retry-after'], '1');
    for (const { body } of [filtered, limited]) t.notMatch(body, /azure-secret|127\.0\.0\.1/);
  });

  await t.test('upstreams test tells what is wrong', async (t) => {
    writeFileSync(join(folder, 'tollgate.yaml'), JSON.stringify(config));
    const { stdout } = await runCommand(folder, ['upstreams', 'test', '--json'], { AZURE_KEY: SECRET });
    const { data: views } = JSON.parse(stdout) as {
      data: { model: string; ok: boolean; result: string; advice: string }[];
    };
    const view = (model: string) => views.find((each) => each.model === model)!;
    for (const model of ['dated', 'other', 'v1', 'preview', 'token']) t.ok(view(model).ok, model);
    t.match(view('missing'), { ok: false, advice: /does not know the model missing/ });
    t.match(view('keyless'), { ok: false, advice: /wants a key and none is set/ });
    t.notMatch(stdout, SECRET);
  });
});
