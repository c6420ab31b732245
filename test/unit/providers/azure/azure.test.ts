/** Which path Azure OpenAI has for which version, and its errors. */
import t from 'tap';
import { AZURE_ERRORS, azurePath } from '#src/providers/azure/azure.js';

const CHAT = { deployment: 'gpt 4', operation: '/chat/completions' };

void t.test('only v1 and preview have the path without a deployment', (t) => {
  const pathOf = (apiVersion: string): string => azurePath({ basePath: '/x', apiVersion }, CHAT);
  t.equal(pathOf('v1'), '/x/openai/v1/chat/completions');
  t.equal(pathOf('preview'), '/x/openai/v1/chat/completions?api-version=preview');
  for (const version of ['2024-10-21', 'constructor', 'toString'])
    t.equal(pathOf(version), `/x/openai/deployments/gpt%204/chat/completions?api-version=${version}`);
  t.end();
});

void t.test("Cloudflare's AI Gateway has the deployment right after the resource", (t) => {
  const base = '/v1/account/gateway/azure-openai/resource';
  t.equal(
    azurePath({ basePath: base, apiVersion: '2024-10-21' }, CHAT),
    `${base}/gpt%204/chat/completions?api-version=2024-10-21`,
  );
  for (const other of [
    '/azure-openai',
    '/azure-openai/prod',
    '/team/v1/a/b/azure-openai/prod',
    `${base}/more`,
  ])
    t.equal(
      azurePath({ basePath: other, apiVersion: '2024-10-21' }, { deployment: 'd', operation: '/embeddings' }),
      `${other}/openai/deployments/d/embeddings?api-version=2024-10-21`,
      `a proxy at ${other} is none`,
    );
  t.end();
});

void t.test('errors of Azure, of API Management, and others', (t) => {
  const read = (status: number, body: unknown): unknown =>
    AZURE_ERRORS.readError(status, () => undefined, typeof body === 'string' ? body : JSON.stringify(body));
  t.same(read(404, { error: { code: 'DeploymentNotFound', message: 'none', innererror: {} } }), {
    status: 404,
    message: 'none',
    code: 'DeploymentNotFound',
  });
  t.match(read(401, { statusCode: 401, message: 'no' }), { status: 401, message: 'no', code: undefined });
  t.match(read(400, { error: 'no' }), { status: 400, message: 'no', code: undefined }, 'of a proxy');
  t.match(read(400, { error: 'Bad Request', message: 'too large' }), { message: 'too large' });
  t.same(read(404, { statusCode: 404, message: 'Resource not found' }), { status: 404, message: '' });
  for (const body of ['', 'no', '[', 'null', { error: ['no'] }, { error: { code: 3, message: null } }])
    t.match(read(500, body), { status: 500, message: '', code: undefined });
  t.end();
});
