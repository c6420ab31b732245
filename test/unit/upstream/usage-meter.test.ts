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
