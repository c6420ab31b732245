/** A completion is written as JSON.stringify would write it, and its members are those of the text. */
import t from 'tap';
import { completionOf, type Completion, type FinishReason } from '#src/providers/chat-writer.js';
import { PROVIDERS } from '#src/providers/providers.js';
import { NO_USAGE } from '../../support/no-usage.js';
import { answerCases } from '../../support/provider-answers.js';
import { GEMINI } from '../../support/provider-dialects.js';
import { callOf, FORMS } from '../../support/provider-forms.js';
import { membersOfResponse } from '#src/upstream/response-json.js';
import { ResponseBudget, WorkerBudget, createBudget } from '#src/upstream/worker-budget.js';
import { ResponseReader } from '#src/upstream/response-reader.js';
import { UsageMeter } from '#src/upstream/usage-meter.js';
import { tokensOfReport } from '#src/upstream/usage-shapes.js';

const TEXTS = ['', 'plain', 'a "quote" \\ and \n', 'é 漢字 😀', '\ud800 alone', '</script>\u2028\u0000'];
const NUMBERS = [0, 1, 130, 2 ** 53, 1e21, 0.5, Infinity];
const FINISHES: readonly FinishReason[] = ['stop', 'length', 'tool_calls', 'function_call', 'content_filter'];

/** Each text, number and reason in each place. */
function* completions(): Generator<Completion> {
  for (const [at, text] of TEXTS.entries()) {
    for (const number of NUMBERS) {
      const finishReason = FINISHES[at % FINISHES.length]!;
      const call = { id: text, type: 'function', function: { name: 'f', arguments: '{}' } };
      const choices = [
        { index: 0, message: { role: 'assistant', content: text, refusal: null }, finishReason },
        { index: number, message: { content: null, tool_calls: [call], gone: undefined }, finishReason },
        { index: 2, message: {}, finishReason, logprobs: { content: [{ token: text, logprob: -number }] } },
      ].slice(0, at % 4);
      const usage = { ...NO_USAGE, promptTokens: 7, completionTokens: number };
      const more = {
        ...usage,
        cachedTokens: number,
        cacheWriteTokens: number,
        cacheWrite1hTokens: number,
        audioPromptTokens: 3,
        imagePromptTokens: number,
        audioCompletionTokens: 4,
        reasoningTokens: number,
      };
      // -1 stands for a number that is no count.
      const mixed = { ...usage, imagePromptTokens: 1, audioCompletionTokens: -1 };
      for (const used of [undefined, NO_USAGE, usage, more, mixed])
        yield { id: text, created: 1_700_000_000, model: text.replace('\ud800', 'x'), choices, usage: used };
    }
  }
}

/** The completion as an object. */
function objectOf({ id, created, model, choices, usage }: Completion): object {
  return {
    id,
    object: 'chat.completion',
    created,
    model,
    choices: choices.map(({ index, message, finishReason, logprobs = null }) => ({
      index,
      message,
      logprobs,
      finish_reason: finishReason,
    })),
    ...(usage && {
      usage: {
        prompt_tokens: usage.promptTokens,
        completion_tokens: usage.completionTokens,
        total_tokens: usage.promptTokens + usage.completionTokens,
        prompt_tokens_details: {
          cached_tokens: usage.cachedTokens,
          cache_write_tokens: usage.cacheWriteTokens,
          ...(usage.cacheWrite1hTokens === 0 ? {} : { cache_write_1h_tokens: usage.cacheWrite1hTokens }),
          ...(usage.audioPromptTokens === 0 ? {} : { audio_tokens: usage.audioPromptTokens }),
          ...(usage.imagePromptTokens === 0 ? {} : { image_tokens: usage.imagePromptTokens }),
        },
        completion_tokens_details: {
          reasoning_tokens: usage.reasoningTokens,
          ...(usage.audioCompletionTokens === 0 ? {} : { audio_tokens: usage.audioCompletionTokens }),
        },
      },
    }),
  };
}

/** What a reader reports and relays, given the body in that way. */
function readBy(give: (reader: ResponseReader) => void): unknown[] {
  const meter = new UsageMeter();
  const results: unknown[] = [];
  const outcome = {
    onBegin: () => undefined,
    complete: (rest: Uint8Array) => results.push(Buffer.from(rest).toString()),
    reject: (failure: unknown) => results.push(failure),
  };
  const reader = new ResponseReader(
    outcome,
    meter,
    new ResponseBudget(new WorkerBudget(createBudget(1, 1e6), 0, 0)),
  );
  give(reader);
  reader.onEnd();
  return [...results, meter.reported, meter.reportError, meter.responseModel];
}

void t.test('completions', (t) => {
  let count = 0;
  for (const completion of completions()) {
    const { text, members } = completionOf(completion);
    if (text !== JSON.stringify(objectOf(completion))) t.fail(text);
    const bytes = Buffer.from(text);
    const read = membersOfResponse(bytes);
    if (read === undefined) t.fail(`not JSON: ${text}`);
    t.strictSame(
      readBy((reader) => reader.onWhole(bytes, members)),
      readBy((reader) => reader.onData(bytes)),
      'read as from its bytes',
    );
    count++;
  }
  t.equal(count, TEXTS.length * NUMBERS.length * 5);
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
