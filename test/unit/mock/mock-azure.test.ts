/** What the mock of Azure refuses. */
import t from 'tap';
import { AZURE_MOCK } from '#src/mock/mock-azure.js';

void t.test("Azure's mock wants its path, version and key", (t) => {
  const read = (path: string, query: string, headers: Record<string, string>): unknown =>
    AZURE_MOCK.read({
      path,
      query,
      headers,
      body: '{"model":"m","messages":[{"role":"user","content":"hi"}]}',
    });
  const path = '/openai/deployments/d/chat/completions';
  const key = { 'api-key': 'k' };
  t.match(read(path, 'api-version=2024-10-21', key), { model: 'm' });
  t.match(read('/openai/v1/chat/completions', '', { authorization: 'Bearer t' }), { model: 'm' });
  t.match(read(path, '', key), { status: 404 });
  t.match(read('/v1/chat/completions', '', key), { status: 404 });
  t.match(read(path, 'api-version=2024-10-21', {}), { status: 401 });
  t.match(read('/openai/deployments/missing/chat/completions', 'api-version=2024-10-21', key), {
    error: /DeploymentNotFound/,
  });
  t.end();
});
