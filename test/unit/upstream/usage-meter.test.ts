/** Which reports are believed, and what is given to the counter. */
import t from 'tap';
import { UsageMeter } from '#src/upstream/usage-meter.js';
import { answerOf, chunkOf, sse } from '../../fixtures/upstream-server.js';

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
  t.equal(meter.countRequest({ tokenizer: 'none', body: '{}' }).completionForm, 'none');
  const events = Buffer.from(sse(chunkOf('hello')));
  meter.addRelayed(events);
  meter.addRelayed(events);
  t.match(meter.countRequest({ tokenizer: 'o200k_base', body: '{}' }), {
    completionForm: 'stream',
    completion: events.toString().repeat(2),
    completionBytes: 2 * events.length,
    relayedBytes: 2 * events.length,
  });

  const whole = new UsageMeter();
  const answer = Buffer.from(answerOf(undefined, 'hello'));
  whole.setWholeResponse(answer);
  t.match(whole.countRequest({ tokenizer: 'o200k_base', body: '{}' }), {
    completionForm: 'response',
    completion: answer.toString(),
    completionBytes: answer.length,
    relayedBytes: answer.length,
  });
  t.end();
});

void t.test('what was told before a stream was left', (t) => {
  const prompt = { input_tokens: 3, cache_read_input_tokens: 4 };
  const meter = new UsageMeter();
  meter.reportSoFar({ usageSoFar: undefined });
  t.equal(meter.reported, undefined);
  meter.reportSoFar({ usageSoFar: { ...prompt, input_tokens: 0, cache_read_input_tokens: 0 } });
  t.equal(meter.reported, undefined, 'a prompt of 0 is none');
  t.equal(meter.reportError, undefined, 'and no fault');
  meter.reportSoFar({ usageSoFar: { ...prompt, input_tokens: 0.5 } });
  t.equal(meter.reportError, 'malformed');
  meter.reportSoFar({ usageSoFar: prompt });
  t.match(meter.reported, { promptTokens: 7, cachedTokens: 4, completionTokens: 0 });
  t.equal(meter.isReportOld, true, 'the completion is counted');

  const told = new UsageMeter();
  told.report({ prompt_tokens: 1, completion_tokens: 2 });
  told.reportSoFar({ usageSoFar: prompt });
  t.match(told.reported, { promptTokens: 1, completionTokens: 2 }, 'a report after the text stands');
  t.equal(told.isReportOld, false);
  told.recordText();
  told.reportSoFar({ usageSoFar: prompt });
  t.match(told.reported, { promptTokens: 7, completionTokens: 0 }, 'one before the last text is older');
  t.end();
});
