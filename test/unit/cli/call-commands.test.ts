/** What `tollgate calls show` prints of a call that a gateway knows. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import type { CallView } from '#src/admin/call-routes.js';
import { runCommand } from '../../support/command.js';

const CALL: Partial<CallView> = {
  ...{ time: '2025-01-31T12:00:00.123Z', request_id: 'req_a-1', route: '/v1/chat/completions' },
  ...{ account: 'acct_0123456789abcdef', account_name: null, key: 'key_0123456789abcdef', key_name: null },
  ...{ model: 'm', answered_model: 'm', upstream: 'u', stream: false, cache: null, status: 200, code: null },
  ...{ prompt_tokens: null, cost: null, first_token_ms: null, duration_ms: 5, queued_ms: 0, admitted_ms: 1 },
  ...{ error: null, attempts: [], quotas: [] },
};

void t.test('why an id has no name: keys are deleted, accounts are not', async (t) => {
  const server = createServer((_request, response) => response.end(JSON.stringify(CALL)));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const end = await runCommand(t.testdir(), ['calls', 'show', 'req_a-1', '--admin-url', origin], {
    TOLLGATE_ADMIN_TOKEN: 'operator-token-0123456789',
  });
  t.match(end, { code: 0, stderr: '' });
  t.match(end.stdout, /^account +acct_0123456789abcdef \(not in the books of this host\)$/m);
  t.match(end.stdout, /^key +key_0123456789abcdef \(deleted\)$/m);
});
