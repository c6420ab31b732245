/** Which path Azure OpenAI has for which version. */
import t from 'tap';
import { azurePath } from '#src/providers/azure/azure.js';

void t.test('only v1 and preview have the path without a deployment', (t) => {
  const pathOf = (version: string): string => azurePath('/x', version, 'gpt 4', '/chat/completions');
  t.equal(pathOf('v1'), '/x/openai/v1/chat/completions');
  t.equal(pathOf('preview'), '/x/openai/v1/chat/completions?api-version=preview');
  for (const version of ['2024-10-21', 'constructor', 'toString'])
    t.equal(pathOf(version), `/x/openai/deployments/gpt%204/chat/completions?api-version=${version}`);
  t.end();
});
