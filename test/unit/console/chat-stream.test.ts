/** What the playground shows of responses that are not the gateway's. Its file is bundled for Node. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import t, { type Test } from 'tap';

interface Progress {
  readonly text: string;
  readonly error?: string;
}
interface Bundle {
  readonly chat: (
    key: string,
    request: object,
    onProgress: (progress: Progress) => void,
    leaving: AbortSignal,
  ) => Promise<void>;
}

/** Returns what the playground shows at the end of a call with that response. */
async function outcomeOf(t: Test, response: () => Response, stream: boolean): Promise<Progress | undefined> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-console-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'chat-stream.mjs');
  const entryPoints = ['./src/console/chat-stream.ts'];
  await build({ entryPoints, outfile, bundle: true, format: 'esm', platform: 'node', logLevel: 'warning' });
  const { chat } = (await import(outfile)) as Bundle;
  t.intercept(globalThis, 'fetch', { value: () => Promise.resolve(response()) });
  let last: Progress | undefined;
  const onProgress = (progress: Progress): void => void (last = progress);
  await chat('sk-1', { stream }, onProgress, new AbortController().signal);
  return last;
}

for (const stream of [true, false]) {
  void t.test(`a proxy’s page is no answer of a model, stream: ${stream}`, async (t) => {
    const headers = { 'content-type': 'text/html; charset=utf-8' };
    const last = await outcomeOf(t, () => new Response('<html>Sign in', { headers }), stream);
    t.equal(last?.text, '');
    t.match(last?.error, /^Not the gateway answered/);
  });

  void t.test(`an answer that breaks off is not taken for a proxy’s, stream: ${stream}`, async (t) => {
    const headers = { 'content-type': stream ? 'text/event-stream' : 'application/json' };
    const broken = new ReadableStream({
      pull: (controller) => controller.error(new TypeError('terminated')),
    });
    const last = await outcomeOf(t, () => new Response(broken, { headers }), stream);
    t.match(last?.error, /^The answer broke off/);
  });
}
