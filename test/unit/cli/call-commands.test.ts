/** What `tollgate calls show` and `calls tail` print of calls that a gateway knows. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import type { CallView } from '#src/admin/call-routes.js';
import { runCommand } from '../../support/command.js';

const CALL: Partial<CallView> = {
  ...{ time: '2025-01-31T12:00:00.123Z', request_id: 'req_a-1', route: '/v1/chat/completions' },
  ...{ account: 'acct_0123456789abcdef', account_name: null, key: 'key_0123456789abcdef', key_name: null },
  ...{ model: 'm', answered_model: 'm', upstream: 'u', stream: false, cache: null, status: 200, code: null },
  ...{ prompt_tokens: null, cost: null, first_token_ms: null, duration_ms: 5, queued_ms: 0, admitted_ms: 1 },
  ...{ error: null, attempts: [], quotas: [] },
};

const TOKEN = 'operator-token-0123456789';

/** Returns the address of a server that answers so. */
async function serve(t: Test, answer: RequestListener): Promise<string> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

void t.test('contents keep their lines and indents, and nothing else that moves the cursor', async (t) => {
  const contents = {
    request: { text: '{\n\t"model": "m"\n}', bytes: 17, cut: false },
    response: { text: 'data: {}\r\n\r\nodd \u{1b}[2J\rx', bytes: 30, cut: true },
  };
  const origin = await serve(t, ({ url }, response) =>
    response.end(JSON.stringify(url!.endsWith('/contents') ? contents : CALL)),
  );
  const end = await runCommand(
    t.testdir(),
    ['calls', 'show', 'req_a-1', '--contents', '--admin-url', origin],
    { TOLLGATE_ADMIN_TOKEN: TOKEN },
  );
  t.match(end, { code: 0, stderr: '' });
  t.ok(
    end.stdout.includes('\n\nrequest, 17 bytes:\n{\n    "model": "m"\n}\n\nresponse, 30 bytes, of which '),
  );
  t.ok(end.stdout.endsWith(' kept:\ndata: {}\n\nodd \ufffd[2J\ufffdx\n'));
});

void t.test('a list of calls, and an export, say which files the gateway cannot read', async (t) => {
  const unread = ['0000000042.calls: EACCES'];
  const origin = await serve(t, (_request, response) =>
    response.end(JSON.stringify({ data: [CALL], next: null, searched_to: null, newest: 'n1', unread })),
  );
  const run = (...words: string[]) =>
    runCommand(t.testdir(), [...words, '--admin-url', origin], { TOLLGATE_ADMIN_TOKEN: TOKEN });
  const said = /Calls may be missing: files of the call log cannot be read \(0000000042\.calls: EACCES\)\.\n/;
  t.match(await run('calls', 'list'), { code: 0, stdout: /req_a-1/, stderr: said });
  const json = await run('calls', 'list', '--json');
  t.match(json, { code: 0, stderr: said });
  t.same((JSON.parse(json.stdout) as { unread: string[] }).unread, unread);
  t.match(await run('export', 'calls', '--day', '2025-01-31'), { code: 1, stdout: '', stderr: said });
});

void t.test('a list that may go on says so, on standard error', async (t) => {
  const change = { number: 1, at_ms: 0, who: 'ann', from: '::1', action: 'keys.rotate', changes: [] };
  const rows = { calls: CALL, changes: { ...change, target: { type: 'key', id: 'k', name: null } } };
  const more = 'There may be more than these 2: --limit shows more of them, --from and --to others.\n';
  for (const command of ['calls', 'changes'] as const)
    for (const [next, options, stderr] of [
      ['c', [], more],
      [null, [], ''],
      ['c', ['--json'], ''],
      ...(command === 'calls' ? ([['c', ['--csv'], more]] as const) : []),
    ] as const) {
      const page = { data: [rows[command], rows[command]], next, searched_to: null, newest: 'n' };
      const origin = await serve(t, (_request, response) => response.end(JSON.stringify(page)));
      const list = [command, 'list', '--limit', '2', ...options, '--admin-url', origin];
      const end = await runCommand(t.testdir(), list, { TOLLGATE_ADMIN_TOKEN: TOKEN });
      t.match(end, { code: 0 }, list.join(' '));
      t.equal(end.stderr, stderr, `${list.join(' ')}, next ${next}`);
      t.notMatch(end.stdout, /There may/);
    }
});

void t.test('calls tail goes on where it was after a gateway that did not answer', async (t) => {
  let requests = 0;
  const origin = await serve(t, (request, response) => {
    requests += 1;
    if (requests === 2 || requests === 3) {
      request.socket.destroy();
      return;
    }
    const isFirst = new URL(request.url!, 'http://x').searchParams.get('after') === null;
    const data = isFirst ? [] : [{ ...CALL, request_id: 'req_b-2' }];
    response.end(JSON.stringify({ data, next: null, searched_to: null, newest: 'n1' }));
  });
  const main = new URL(import.meta.resolve('#src/cli/main.js')).pathname;
  const child = spawn(process.execPath, [main, 'calls', 'tail', '--admin-url', origin], {
    cwd: t.testdir(),
    env: { ...process.env, TOLLGATE_ADMIN_TOKEN: TOKEN },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
  const [first] = (await Promise.race([once(child.stdout, 'data'), once(child, 'exit')])) as [
    Buffer | number,
  ];
  t.match(String(first), /req_b-2/);
  t.equal(said, 'The gateway does not answer. Trying again every 1 s; Ctrl-C ends.\n', 'once');
});
