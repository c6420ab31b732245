/**
 * The first evening: no configuration at all, an empty folder, the printed lines pasted into a shell.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { startGateway, temporaryFolder } from '../support/gateway.js';
import { request } from '../support/http.js';
import { chunksOf, eventData, textOf } from '../support/sse.js';

const KEY = /sk-[A-Za-z0-9_-]{43}/g;
const HAS_CURL = spawnSync('curl', ['--version']).status === 0;

/** Runs a printed line as a shell would; without curl here, does what it says. */
async function pasted(line: string): Promise<string> {
  if (HAS_CURL) return execFileSync('sh', ['-c', `${line} -s`], { encoding: 'utf8', timeout: 120_000 });
  const words = [...line.matchAll(/'([^']*)'|(\S+)/g)].map((match) => match[1] ?? match[2]!);
  const url = new URL(words.find((word) => word.startsWith('http://'))!);
  const after = (flag: string): string[] => words.filter((_, index) => words[index - 1] === flag);
  const headers = Object.fromEntries(after('-H').map((header) => header.split(': ', 2) as [string, string]));
  return (await request({ port: Number(url.port), path: url.pathname, headers, body: after('-d')[0] })).body;
}

void t.test('the first start and the second', async (t) => {
  const folder = temporaryFolder(t);
  const first = await startGateway(t, { folder });
  const banner = first.child.stdout();
  const keys = new Set(banner.match(KEY));
  t.equal(keys.size, 1, 'one key is printed');
  const [key] = keys;
  t.match(banner, first.url, 'and the address');
  const lines = banner.split('\n').filter((line) => line.trim().startsWith('curl'));
  t.equal(lines.length, 2, 'two lines to paste');

  const whole = JSON.parse(await pasted(lines[0]!.trim())) as {
    object: string;
    choices: [{ message: { content: string } }];
    usage: { prompt_tokens: number; completion_tokens: number; total_tokens: number };
  };
  t.equal(whole.object, 'chat.completion');
  t.match(whole.choices[0].message.content, /Tollgate/, 'the echo');
  t.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  const body = await pasted(lines[1]!.trim());
  t.equal(eventData(body).at(-1), '[DONE]');
  t.equal(textOf(chunksOf(body)), whole.choices[0].message.content, 'the same, streamed');
  t.equal(await first.stop(), 0);

  for (const file of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!file.isFile()) continue;
    t.notOk(
      readFileSync(join(file.parentPath, file.name)).includes(key!),
      `${file.name} does not hold the key`,
    );
  }

  const second = await startGateway(t, { folder });
  t.notMatch(second.child.stdout(), KEY, 'the second start prints no key');
  const answer = await second.request(key!, {
    body: { model: 'echo', messages: [{ role: 'user', content: 'Hello again' }] },
  });
  t.equal(answer.status, 200, 'the first key is still good');
  t.match(answer.body, /Hello again/);
  // An agent's calls are large.
  const large = await second.request(key!, {
    path: '/v1/messages',
    body: { model: 'echo', max_tokens: 9_999, messages: [{ role: 'user', content: 'Hello '.repeat(1_000) }] },
  });
  t.equal(large.status, 200, large.body);
  t.match(large.body, /Hello Hello/);
  t.equal(await second.stop(), 0);
});
