/** Completions and chunks are what JSON.stringify would write; a completion has the members of its text. */
import t from 'tap';
import {
  ChunkWriter,
  completionOf,
  escaped,
  textCompletionOf,
  type Completion,
  type FinishReason,
} from '#src/providers/chat-writer.js';
import { NO_USAGE } from '../../support/no-usage.js';
import { membersOfResponse } from '#src/upstream/response-json.js';
import { ResponseBudget, WorkerBudget, createBudget } from '#src/upstream/worker-budget.js';
import { ResponseReader } from '#src/upstream/response-reader.js';
import { UsageMeter } from '#src/upstream/usage-meter.js';

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

void t.test('a time that is none', (t) => {
  for (const created of [NaN, Infinity, -1, 1.5]) {
    const head = { id: 'x', created, model: 'm', usage: undefined };
    const completion = { ...head, choices: [] };
    t.equal(completionOf(completion).text, JSON.stringify(objectOf(completion)));
    const { text } = textCompletionOf(head, escaped('Hi "you"'), 'stop');
    const message = { role: 'assistant', content: 'Hi "you"' };
    const choices = [{ index: 0, message, finishReason: 'stop' as const }];
    t.equal(text, JSON.stringify(objectOf({ ...head, choices })));
  }
  t.end();
});

void t.test('the chunks of a choice name that choice', (t) => {
  const writer = new ChunkWriter('x', 'm', 1_700_000_000);
  const head = { id: 'x', object: 'chat.completion.chunk', created: 1_700_000_000, model: 'm' };
  for (const text of TEXTS)
    for (const index of [0, 3, 1]) {
      const call = { index: 2, id: text, type: 'function', function: { name: text, arguments: '' } };
      const piece = { index: 2, function: { arguments: text } };
      const chunks: [written: string, delta: object, finish: string | null][] = [
        [writer.role(index), { role: 'assistant', content: '' }, null],
        [writer.text(text, index), { content: text }, null],
        [writer.reasoning(text, index), { reasoning_content: text }, null],
        [writer.toolStart(2, text, text, index), { tool_calls: [call] }, null],
        [writer.toolArguments(2, escaped(text), index), { tool_calls: [piece] }, null],
        [writer.finish('stop', index), {}, 'stop'],
      ];
      for (const [written, delta, finish] of chunks) {
        const choices = [{ index, delta, logprobs: null, finish_reason: finish }];
        t.equal(written, `data: ${JSON.stringify({ ...head, choices })}\n\n`);
      }
    }
  t.end();
});
