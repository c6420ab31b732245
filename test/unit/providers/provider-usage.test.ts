/** What a provider reports of tokens, and what usage-shapes.ts reads of the `usage` that is written of it. */
import t from 'tap';
import { countIn, sumOfCounts, usageMember } from '#src/providers/provider-usage.js';
import { PROVIDERS } from '#src/providers/providers.js';
import { tokensOfReport } from '#src/upstream/usage-shapes.js';
import { NO_USAGE } from '../../support/no-usage.js';
import { answerCases } from '../../support/provider-answers.js';
import { GEMINI } from '../../support/provider-dialects.js';
import { callOf, FORMS } from '../../support/provider-forms.js';

void t.test('counts and their sums', (t) => {
  for (const absent of [undefined, null]) t.equal(countIn(absent), 0);
  for (const count of [0, 7, 2.5, -3]) t.equal(countIn(count), count);
  for (const other of ['7', true, [7], {}, '']) t.equal(countIn(other), -1, JSON.stringify(other));
  t.equal(sumOfCounts(), 0);
  t.equal(sumOfCounts(1, 2, 3), 6);
  for (const wrong of [-1, 0.5, NaN, Infinity])
    t.ok(Object.is(sumOfCounts(300, wrong, 1), wrong), `${wrong}`);
  t.end();
});

void t.test('the written usage is read as what was reported', (t) => {
  const counts = {
    promptTokens: 100,
    cachedTokens: 20,
    cacheWriteTokens: 30,
    cacheWrite1hTokens: 10,
    completionTokens: 50,
    reasoningTokens: 5,
  };
  const media = { audioPromptTokens: 1, imagePromptTokens: 2, audioCompletionTokens: 3 };
  t.strictSame(tokensOfReport(usageMember({ ...counts, ...media })), { ...counts, source: 'reported' });
  const zeros = usageMember(NO_USAGE);
  t.strictSame(zeros.prompt_tokens_details, { cached_tokens: 0, cache_write_tokens: 0 });
  t.strictSame(zeros.completion_tokens_details, { reasoning_tokens: 0 });
  t.end();
});

void t.test('no sum hides what is no count', (t) => {
  const reports: Readonly<Record<string, readonly object[]>> = {
    anthropic: [
      { input_tokens: -5, cache_read_input_tokens: 300, output_tokens: 9 },
      { input_tokens: 5, cache_read_input_tokens: 2.5, cache_creation_input_tokens: 2.5, output_tokens: 9 },
      { input_tokens: '500', cache_read_input_tokens: 3, output_tokens: 9 },
    ],
    gemini: [
      { promptTokenCount: 12, toolUsePromptTokenCount: -7, candidatesTokenCount: 9 },
      { promptTokenCount: 12, candidatesTokenCount: -5, thoughtsTokenCount: 20 },
      { promptTokenCount: 12, candidatesTokenCount: 4.5, thoughtsTokenCount: 4.5 },
      { promptTokenCount: 12, candidatesTokenCount: '900', thoughtsTokenCount: 4 },
    ],
    bedrock: [
      { inputTokens: -5, cacheReadInputTokens: 300, outputTokens: 9 },
      { inputTokens: 5, outputTokens: -9 },
      {
        inputTokens: 5,
        outputTokens: 9,
        cacheWriteInputTokens: 4,
        cacheDetails: [
          { ttl: '1h', inputTokens: '3' },
          { ttl: '1h', inputTokens: 1 },
        ],
      },
      { inputTokens: '500', cacheReadInputTokens: 3, outputTokens: 9 },
    ],
  };
  for (const form of FORMS) {
    const [first] = answerCases(form.dialect);
    for (const usage of reports[form.dialect === GEMINI ? 'gemini' : form.provider] ?? reports.anthropic!) {
      const body = Buffer.from(JSON.stringify(form.dialect.whole({ ...first!, usage: { ...usage } })));
      const { members } = PROVIDERS[form.provider]!.readResponse(body, callOf(form, {}));
      t.equal(tokensOfReport(members.usage), 'malformed', `${form.name}: ${JSON.stringify(usage)}`);
    }
  }
  t.end();
});
