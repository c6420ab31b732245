/** A counter that is late or dead is replaced by an estimate. */
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { asAccountIndex } from '#src/core/units.js';
import type { Usage } from '#src/core/token-counts.js';
import type { CountRequest } from '#src/upstream/token-count.js';
import { countOrEstimate, estimateTokens } from '#src/upstream/token-estimate.js';
import { ErrorLog } from '#src/upstream/error-log.js';
import { FakeLog } from '../../fixtures/upstream-server.js';

const ACCOUNT = asAccountIndex(7);
const REQUEST: CountRequest = {
  tokenizer: 'o200k_base',
  body: '{"messages":[{"role":"user","content":"12345678"}]}',
  completionForm: 'none',
  texts: new Map(),
  completion: '',
  completionBytes: 0,
  relayedBytes: 0,
};
const COUNTED: Usage = {
  promptTokens: 1,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  reasoningTokens: 0,
  completionTokens: 2,
  source: 'counted',
};
const ESTIMATED: Usage = {
  promptTokens: 9,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  reasoningTokens: 0,
  completionTokens: 0,
  source: 'estimated',
};

void t.test('the count where there is one, else an estimate and a line in the log', async (t) => {
  const log = new FakeLog();
  const faults = new ErrorLog(log, new SystemClock());
  const asked: unknown[] = [];
  const count = (...args: unknown[]): Promise<Usage> => {
    asked.push(...args);
    return Promise.resolve(COUNTED);
  };
  t.strictSame(await countOrEstimate(count, REQUEST, ACCOUNT, faults), COUNTED);
  t.strictSame(asked, [REQUEST, ACCOUNT]);
  t.equal(log.lines.length, 0);
  const dead = (): Promise<Usage> => Promise.reject(new Error('dead'));
  t.strictSame(await countOrEstimate(dead, REQUEST, ACCOUNT, faults), ESTIMATED);
  t.match(log.lines[0]?.fields.cause, /dead/);
});

void t.test('a large body is estimated from its bytes, without those of images', (t) => {
  const image = { type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(3_000_000)}` } };
  const bodyOf = (content: unknown): string => JSON.stringify({ messages: [{ role: 'user', content }] });
  const text = 'x'.repeat(400_000);
  const data = 'ab/+'.repeat(300_000);
  const source = { type: 'base64', media_type: 'image/png', data };
  const prose = 'words '.repeat(66_666);
  const bodies = [
    bodyOf(text),
    bodyOf([image, { type: 'text', text }, image]),
    // Texts that look like an image are texts.
    bodyOf(`data:${text}`),
    bodyOf([{ type: 'text', text: `data:image/png;base64,${text}` }, image]),
    bodyOf(`{"url":"data:${text}`),
    // Base64 without an address, as at Messages and in sounds.
    bodyOf([
      { type: 'image', source },
      { type: 'input_audio', input_audio: { data: data.replaceAll('+', '-'), format: 'wav' } },
      { type: 'file', file: { file_data: data } },
      { type: 'text', text },
    ]),
    JSON.stringify({ messages: [{ role: 'user', content: [{ type: 'image', source }, text] }] }, null, 2),
    bodyOf([{ type: 'image', source }, text]).replaceAll('ab/', 'ab\\/'),
    bodyOf([{ type: 'document', source: { type: 'text', media_type: 'text/plain', data: prose } }]),
    bodyOf([{ type: 'tool_use', input: { data: prose, metadata: 'some data' } }]),
    bodyOf(`{"data":"${text}`),
    bodyOf([{ type: 'tool_use', input: { mydata: text } }]),
  ];
  for (const body of bodies) {
    for (const form of [body, Buffer.from(body)]) {
      const startMs = performance.eventLoopUtilization().active;
      const usage = estimateTokens({ ...REQUEST, body: form });
      t.equal(usage.source, 'estimated');
      t.ok(usage.promptTokens >= 100_000 && usage.promptTokens < 100_100, `${usage.promptTokens} tokens`);
      t.ok(performance.eventLoopUtilization().active - startMs < 1_000);
    }
  }
  t.end();
});
