/** Which reports are believed, and what is given to the counter. */
import t from 'tap';
import { reportedUsage, UsageMeter } from '#src/upstream/usage-meter.js';
import { answerOf, chunkOf, sse } from '../../fixtures/upstream-server.js';

void t.test('plausible reports', (t) => {
  t.strictSame(reportedUsage({ prompt_tokens: 0, completion_tokens: 0 }), {
    promptTokens: 0,
    cachedTokens: 0,
    completionTokens: 0,
    source: 'reported',
  });
  const cached = {
    prompt_tokens: 5,
    completion_tokens: 1,
    total_tokens: 6,
    prompt_tokens_details: { cached_tokens: 5 },
  };
  t.equal(reportedUsage(cached)?.cachedTokens, 5);
  t.ok(reportedUsage({ prompt_tokens: 1e9, completion_tokens: 1e9, total_tokens: 2e9 }));
  t.ok(
    reportedUsage({
      prompt_tokens: 1,
      completion_tokens: 1,
      total_tokens: null,
      prompt_tokens_details: null,
    }),
  );
  t.end();
});

void t.test('reports that cannot be true', (t) => {
  const bad: unknown[] = [
    null,
    undefined,
    5,
    [],
    {},
    { prompt_tokens: 1 },
    { prompt_tokens: -1, completion_tokens: 1 },
    { prompt_tokens: 1.5, completion_tokens: 1 },
    { prompt_tokens: '1', completion_tokens: 1 },
    { prompt_tokens: 1, completion_tokens: 1e9 + 1 },
    { prompt_tokens: 1, completion_tokens: 1, total_tokens: 3 },
    { prompt_tokens: 1, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 2 } },
    { prompt_tokens: 1, completion_tokens: 1, prompt_tokens_details: { cached_tokens: -1 } },
  ];
  for (const value of bad) t.equal(reportedUsage(value), undefined, JSON.stringify(value));
  t.end();
});

void t.test('the last plausible report stands', (t) => {
  const meter = new UsageMeter();
  meter.report({ prompt_tokens: 1, completion_tokens: 1 });
  meter.report({ prompt_tokens: 1, completion_tokens: 2 });
  meter.report({ prompt_tokens: -1, completion_tokens: 2 });
  t.equal(meter.reported?.completionTokens, 2);
  t.end();
});

void t.test('what the counter is given', (t) => {
  const meter = new UsageMeter();
  t.equal(meter.countRequest('none', '{}').completionForm, 'none');
  const events = Buffer.from(sse(chunkOf('hello')));
  meter.relayed(events);
  meter.relayed(events);
  t.match(meter.countRequest('o200k_base', '{}'), {
    completionForm: 'stream',
    completion: events.toString().repeat(2),
    completionBytes: 2 * events.length,
    relayedBytes: 2 * events.length,
  });

  const whole = new UsageMeter();
  const answer = Buffer.from(answerOf(undefined, 'hello'));
  whole.answered(answer);
  t.match(whole.countRequest('o200k_base', '{}'), {
    completionForm: 'answer',
    completion: answer.toString(),
    completionBytes: answer.length,
    relayedBytes: answer.length,
  });
  t.end();
});
