/** What Gemini says, in events of a stream, and the chat completion that it means. */
import { geminiCall } from './gemini-call.js';

export type Json = Record<string, unknown>;

export const CALL = geminiCall({ stream: true }, { stream: true });
export const HEAD = { modelVersion: 'gemini-2.5-flash-001', responseId: 'resp-1' };
export const event = (parts: object[], more: Json = {}, candidate: Json = {}): Json => ({
  candidates: [{ content: { role: 'model', parts }, ...candidate }],
  ...more,
  ...HEAD,
});
export const text = (value: string): object => ({ text: value });
export const thought = (value: string): object => ({ text: value, thought: true });
export const usage = (prompt: number, candidates: number, more: Json = {}): Json => ({
  usageMetadata: { promptTokenCount: prompt, candidatesTokenCount: candidates, ...more },
});
export const STOP = { finishReason: 'STOP' };
export const PNG = { inlineData: { mimeType: 'image/png', data: 'iVBORw0KGgo=' } };

export const completionUsage = (
  prompt: number,
  completion: number,
  more: Json = {},
  details: Json = {},
): Json => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: prompt + completion,
  prompt_tokens_details: { cached_tokens: 0, cache_write_tokens: 0, ...more },
  completion_tokens_details: { reasoning_tokens: 0, ...details },
});

export interface Case {
  readonly name: string;
  readonly events: readonly Json[];
  readonly message: Json;
  readonly finish: string;
  readonly usage?: Json;
  readonly logprobs?: Json;
}

export const CASES: readonly Case[] = [
  {
    name: 'text, with usage that grows',
    events: [
      event([text('Hello')], usage(5, 1)),
      event([text(', wörld 🌍')], usage(5, 3)),
      event([text('!')], usage(5, 4, { totalTokenCount: 9 }), STOP),
    ],
    message: { role: 'assistant', content: 'Hello, wörld 🌍!' },
    finish: 'stop',
    usage: completionUsage(5, 4),
  },
  {
    name: 'thoughts are tokens beside the candidates',
    events: [
      event([thought('Let me ')], usage(10, 0, { thoughtsTokenCount: 8 })),
      event([thought('think.')]),
      event([text('42')], usage(10, 2, { thoughtsTokenCount: 12, totalTokenCount: 24 }), STOP),
    ],
    message: { role: 'assistant', content: '42', reasoning_content: 'Let me think.' },
    finish: 'stop',
    usage: completionUsage(10, 14, {}, { reasoning_tokens: 12 }),
  },
  {
    name: 'thoughts that the candidates hold, by the total',
    events: [event([text('42')], usage(10, 14, { thoughtsTokenCount: 12, totalTokenCount: 24 }), STOP)],
    message: { role: 'assistant', content: '42' },
    finish: 'stop',
    usage: completionUsage(10, 14, {}, { reasoning_tokens: 12 }),
  },
  {
    name: 'cached tokens, results of Google’s tools, modalities',
    events: [
      event(
        [text('x')],
        usage(100, 1, {
          cachedContentTokenCount: 60,
          toolUsePromptTokenCount: 7,
          totalTokenCount: 108,
          promptTokensDetails: [
            { modality: 'TEXT', tokenCount: 20 },
            { modality: 'IMAGE', tokenCount: 50 },
            { modality: 'AUDIO', tokenCount: 30 },
          ],
          candidatesTokensDetails: [{ modality: 'AUDIO', tokenCount: 1 }],
        }),
        STOP,
      ),
    ],
    message: { role: 'assistant', content: 'x' },
    finish: 'stop',
    usage: completionUsage(
      107,
      1,
      { cached_tokens: 60, audio_tokens: 30, image_tokens: 50 },
      { audio_tokens: 1 },
    ),
  },
  {
    name: 'calls of functions, the first with a signature',
    events: [
      event([
        { functionCall: { name: 'weather', args: { city: 'Köln', days: [1, 2] } }, thoughtSignature: 'c2ln' },
        { functionCall: { id: 'given-1', name: 'now' } },
      ]),
      event([text('')], usage(20, 9), STOP),
    ],
    message: {
      role: 'assistant',
      content: null,
      tool_calls: [
        {
          id: 'call_req_test-42_0_0',
          type: 'function',
          function: { name: 'weather', arguments: '{"city":"Köln","days":[1,2]}' },
          extra_content: { google: { thought_signature: 'c2ln' } },
        },
        { id: 'given-1', type: 'function', function: { name: 'now', arguments: '{}' } },
      ],
    },
    finish: 'tool_calls',
    usage: completionUsage(20, 9),
  },
  {
    name: 'a call after text',
    events: [
      event([text('I look. ')]),
      event([{ functionCall: { id: 'a', name: 'f', args: {} } }], usage(1, 1), STOP),
    ],
    message: {
      role: 'assistant',
      content: 'I look. ',
      tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }],
    },
    finish: 'tool_calls',
    usage: completionUsage(1, 1),
  },
  {
    name: 'the signature of a text, in a part of its own',
    events: [event([text('Yes.')]), event([{ text: '', thoughtSignature: 'c2ln' }], usage(1, 1), STOP)],
    message: {
      role: 'assistant',
      content: 'Yes.',
      extra_content: { google: { thought_signature: 'c2ln' } },
    },
    finish: 'stop',
    usage: completionUsage(1, 1),
  },
  {
    name: 'an image, after a sketch among the thoughts',
    events: [
      event([{ ...PNG, thought: true }]),
      event([text('Here: '), { ...PNG, thoughtSignature: 'c2ln' }], usage(4, 1_290), STOP),
    ],
    message: {
      role: 'assistant',
      content: 'Here: ',
      images: [
        {
          type: 'image_url',
          image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' },
          index: 0,
          extra_content: { google: { thought_signature: 'c2ln' } },
        },
      ],
    },
    finish: 'stop',
    usage: completionUsage(4, 1_290),
  },
  {
    name: 'logprobs',
    events: [
      event([text('Hi')], usage(1, 1), {
        ...STOP,
        logprobsResult: {
          chosenCandidates: [{ token: 'Hi', tokenId: 5, logProbability: -0.1 }],
          topCandidates: [
            {
              candidates: [
                { token: 'Hi', logProbability: -0.1 },
                { token: 'Ho', logProbability: -2 },
              ],
            },
          ],
        },
      }),
    ],
    message: { role: 'assistant', content: 'Hi' },
    finish: 'stop',
    usage: completionUsage(1, 1),
    logprobs: {
      content: [
        {
          token: 'Hi',
          logprob: -0.1,
          bytes: null,
          top_logprobs: [
            { token: 'Hi', logprob: -0.1, bytes: null },
            { token: 'Ho', logprob: -2, bytes: null },
          ],
        },
      ],
      refusal: null,
    },
  },
  {
    name: 'a prompt that Google blocks',
    events: [{ promptFeedback: { blockReason: 'SAFETY' }, ...usage(6, 0), ...HEAD }],
    message: { role: 'assistant', content: '' },
    finish: 'content_filter',
    usage: completionUsage(6, 0),
  },
  {
    name: 'a candidate that was stopped before it said anything',
    events: [{ candidates: [{ finishReason: 'PROHIBITED_CONTENT', index: 0 }], ...HEAD }],
    message: { role: 'assistant', content: '' },
    finish: 'content_filter',
  },
  {
    name: 'parts that nobody knows',
    events: [
      event([{ executableCode: { code: '1' } }, text('a'), { videoMetadata: {} }, { text: 'b' }], {}, STOP),
    ],
    message: { role: 'assistant', content: 'ab' },
    finish: 'stop',
  },
];
