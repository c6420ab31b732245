/** What the playground shows of responses that are not the gateway's. Its file is bundled for Node. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import t from 'tap';

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

void t.test('a proxy’s page is no answer of a model, whether it was to be streamed or not', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-console-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'chat-stream.mjs');
  const entryPoints = ['./src/console/chat-stream.ts'];
  await build({ entryPoints, outfile, bundle: true, format: 'esm', platform: 'node', logLevel: 'warning' });
  const { chat } = (await import(outfile)) as Bundle;
  const page = (): Response =>
    new Response('<html>Sign in', { headers: { 'content-type': 'text/html; charset=utf-8' } });
  t.intercept(globalThis, 'fetch', { value: () => Promise.resolve(page()) });
  for (const stream of [true, false]) {
    let last: Progress | undefined;
    const onProgress = (progress: Progress): void => void (last = progress);
    await chat('sk-1', { stream }, onProgress, new AbortController().signal);
    t.equal(last?.text, '');
    t.match(last?.error, /^Not the gateway answered/, `stream: ${stream}`);
  }
});
