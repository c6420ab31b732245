/**
 * A coding agent, OpenAI's Codex, unmodified and without a login, through a gateway at an upstream that
 * speaks Responses. The upstream's script is a call of the agent's own tool, then a text.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import type { MockAnswer } from '#src/mock/mock-protocol.js';
import { RESPONSES_MOCK } from '#src/mock/mock-responses.js';
import { eventually, startGateway, temporaryFolder, TEST_PRICE } from '../support/gateway.js';
import type { Scope } from '../support/mock.js';
import { FOLDER, WANTS_CLIENTS } from './installed.js';

const MODEL = 'coder';
const SECONDS_MAX = 60;
const SAID = 'The greeting is mended.';
const COMMAND = "sed -i 's/wrold/world/' greeting.txt";
const USAGE = { prompt: 1_000, cached: 400, written: 0, writtenForHour: 0, completion: 50, reasoning: 0 };
/** Of one call, in pico-units. */
const COST = 600n * 1_500_000n + 400n * 750_000n + 50n * 2_250_000n;

/** Base URL of a server that calls `exec_command`, and says so once it has the result. */
async function startScript(t: Scope, bodies: string[]): Promise<string> {
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      bodies.push(body);
      const read = RESPONSES_MOCK.read({ path: '/v1/responses', query: '', headers: {}, body });
      if ('error' in read) {
        response.writeHead(read.status, { 'content-type': 'application/json' }).end(read.error);
        return;
      }
      const call = { id: 'call_1', name: 'exec_command', pieces: [JSON.stringify({ cmd: COMMAND })] };
      const answer: MockAnswer = {
        request: read,
        thinking: [],
        texts: [read.answersTools ? SAID : 'I mend it.'],
        tools: read.answersTools ? [] : [call],
        finish: read.answersTools ? 'stop' : 'tool_calls',
        usage: USAGE,
        isUsageLate: false,
      };
      response.writeHead(200, { 'content-type': RESPONSES_MOCK.streamType });
      response.end(Buffer.concat(RESPONSES_MOCK.frames(answer)));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
}

void t.test('a coding agent edits a file, and its calls are in the books', WANTS_CLIENTS, async (t) => {
  const bodies: string[] = [];
  const url = await startScript(t, bodies);
  const gateway = await startGateway(t, {
    config: {
      models: [{ id: MODEL, price: TEST_PRICE, upstreams: [{ url, speaks: ['responses'] }] }],
      plans: [{ id: 'ample', requests_per_minute: 1_000, calls_per_day: 1_000 }],
    },
  });
  const who = await gateway.admin.customer();
  const [home, folder] = [temporaryFolder(t), temporaryFolder(t)];
  mkdirSync(join(home, '.codex'));
  const file = join(folder, 'greeting.txt');
  writeFileSync(file, 'Hello wrold\n');
  const provider = `{name="tollgate",base_url="${gateway.url}/v1",env_key="TOLLGATE_KEY",wire_api="responses"}`;
  const settings = ['model_provider="tollgate"', `model_providers.tollgate=${provider}`];
  const child = spawn(
    process.execPath,
    [
      join(FOLDER, 'node_modules/@openai/codex/bin/codex.js'),
      'exec',
      '--skip-git-repo-check',
      '--dangerously-bypass-approvals-and-sandbox',
      ...settings.flatMap((setting) => ['-c', setting]),
      ...['-m', MODEL, 'Mend the greeting in greeting.txt.'],
    ],
    {
      cwd: folder,
      // Nothing of this machine's own settings or keys.
      env: { PATH: process.env.PATH, HOME: home, TOLLGATE_KEY: who.key },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: SECONDS_MAX * 1_000,
    },
  );
  const [said, told, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
  ]);
  t.equal(code, 0, told);
  t.match(said, SAID);
  t.equal(readFileSync(file, 'utf8'), 'Hello world\n', 'by a tool call');
  t.equal(bodies.length, 2);
  const row = await eventually('two calls in the books', async () => {
    const row = await gateway.admin.usageOf(who.accountId);
    return row?.calls === 2 ? row : undefined;
  });
  t.match(row, { prompt_tokens: 2 * USAGE.prompt, completion_tokens: 2 * USAGE.completion });
  t.equal(picoUnitsOf(row.cost), 2n * COST);
});
