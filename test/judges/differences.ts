/**
 * Where LiteLLM's translation and ours differ, and the decision on each: a class of differences, in the form
 * of differencesOf, with the reason by the provider's reference. Claude's are in differences-claude.ts.
 */
import type { Listed } from './difference.js';
import {
  ANTHROPIC,
  BEDROCK,
  CLAUDE_ERRORS,
  COMMON,
  OVERLOADED,
  VERTEX_CLAUDE,
} from './differences-claude.js';

/** Gemini: https://ai.google.dev/api/generate-content, https://ai.google.dev/gemini-api/docs/openai. */
const GEMINI: readonly Listed[] = [
  ...COMMON,
  {
    difference: /^systemInstruction\.parts: /,
    cases: /^(system in parts|two systems)$/,
    decision: 'A Content has any number of parts; LiteLLM joins texts without a space between them.',
  },
  {
    difference: /^contents: /,
    cases: /^assistant refused$/,
    decision:
      "What the assistant said when it refused is its turn; LiteLLM leaves it out, and the user's turns meet.",
  },
  {
    difference: /^contents: \[{"role":"user","parts":\[{"text":"Please continue\."}\]},/,
    cases: /^begins with the assistant$/,
    decision: 'A call of a function must follow a turn of the user; LiteLLM adds that turn for Claude alone.',
  },
  {
    difference: /^contents\.\*\.parts: .*\| .*/,
    cases: /^(image |two images|audio)/,
    decision:
      'LiteLLM adds a text of one blank beside media alone, which gemini-pro-vision wanted; models of today do not.',
  },
  {
    difference: /^generationConfig: - \| {"mediaResolution"/,
    cases: /^image detail$/,
    decision:
      '`detail` is a hint about cost: the model chooses itself unless mediaResolution is said for the whole request.',
  },
  {
    difference: /^taken \| refused/,
    cases: /^image of the web$/,
    decision:
      'Gemini fetches https addresses of fileData itself; LiteLLM fetches them, and its judge has no network.',
  },
  {
    difference: /^refused messages\[0\]\.content\[0\]\.image_url \| taken/,
    cases: /^image of no type$/,
    decision: 'inlineData needs a mimeType; LiteLLM sends an empty one.',
  },
  {
    difference: /^tools\.\*\.functionDeclarations\.\*\.parameters(JsonSchema)?: /,
    decision:
      'parametersJsonSchema takes the schema as it is; LiteLLM rewrites it as a subset of OpenAPI, and loses $defs and unions.',
  },
  {
    difference: /^contents\.\*\.parts\.\*\.functionResponse\.response\.(result|output|content): /,
    decision: 'A response is any object; a text gets a member around it, whose name is free.',
  },
  {
    difference: /^contents\.\*\.parts\.\*\.functionCall\.args\.type: - \| "object"/,
    decision: 'LiteLLM invents an argument for a call without any.',
  },
  {
    difference: /^contents\.\*\.parts: .* \| \[{"(text":""|thought":true)/,
    decision:
      'An empty text says nothing; thoughts come back by their signatures alone, a summary of them is not wanted by the reference.',
  },
  {
    difference: /^contents\.\*\.parts\.\*\.thoughtSignature: "c2ln.* \| -/,
    decision: "We read Google's own extra_content, LiteLLM its own provider_specific_fields.",
  },
  {
    difference: /^generationConfig\.stopSequences: /,
    cases: /^stop of five$/,
    decision: 'The reference allows five; LiteLLM cuts to four.',
  },
  {
    difference:
      /^generationConfig: - \| {"(candidateCount":1|responseLogprobs":false|responseMimeType":"text\/plain"|responseModalities":\["TEXT"\])}/,
    decision: 'The default, which LiteLLM says and we do not.',
  },
  {
    difference: /^taken \| refused/,
    cases: /^(top_logprobs|effort xhigh)/,
    decision: 'generationConfig.logprobs is the number of them; xhigh is the largest budget.',
  },
  {
    difference: /^serviceTier: - \| /,
    decision: 'The tier is that of our account, not of the caller.',
  },
  {
    difference: /^refused parallel_tool_calls \| taken/,
    decision:
      'Gemini has no word for one call at most; LiteLLM drops it, and a caller that runs one call loses the others.',
  },
  {
    difference: /^generationConfig\.thinkingConfig\.thinkingBudget: (1024|8192|24576) \| (1|2048|4096)$/,
    decision: "Google's own table for its OpenAI-compatible endpoint: 1024, 8192, 24576.",
  },
  {
    difference: /^generationConfig\.thinkingConfig: {"thinkingBudget":0,"includeThoughts":false} \| -/,
    cases: /^thinking switched off$/,
    decision: 'A budget of 0 switches it off; LiteLLM sends an empty thinkingConfig, and the model thinks.',
  },
  {
    difference: /^thinking: \[\] \| /,
    decision:
      'Gemini signs no thoughts: they are reasoning_content; a thinking block without a signature could not go back.',
  },
  {
    difference: /^usage\.reasoning: 0 \| \d+/,
    cases: /stream$/,
    decision:
      'LiteLLM counts the words of thoughts where the provider reports none: our bills are its numbers.',
  },
  {
    difference: /^content: "Hello, how can I help you today\?" \| ""/,
    cases: /^stop (SAFETY|RECITATION|BLOCKLIST|PROHIBITED_CONTENT|SPII), whole/,
    decision:
      'What was generated is billed and, in a stream, delivered: a whole response says the same, with content_filter.',
  },
];

const GEMINI_ERRORS: readonly Listed[] = [
  {
    difference: /^failed model_not_found \| failed 404/,
    cases: /^status 404/,
    decision: 'Our 404 means that; the caller sees neither, for the model is one of ours.',
  },
  {
    difference: /^failed 500 \| failed 504/,
    cases: /^status 504/,
    decision: 'Both are a failure of the provider, after which another upstream is asked.',
  },
];

/** By the name of the form. */
export const LISTED: Readonly<Record<string, readonly Listed[]>> = {
  gemini: [...GEMINI, ...GEMINI_ERRORS],
  anthropic: [
    ...ANTHROPIC,
    ...CLAUDE_ERRORS,
    OVERLOADED,
    {
      difference: /^failed 413 \| failed 400/,
      cases: /^status 413,/,
      decision: 'The caller gets 400 in the end; 413 says why in the log.',
    },
  ],
  // There LiteLLM takes the address of an image, too.
  'vertex with Gemini': [
    ...GEMINI.filter(({ cases }) => cases?.source !== '^image of the web$'),
    ...GEMINI_ERRORS,
  ],
  'vertex with Claude': VERTEX_CLAUDE,
  bedrock: [
    ...BEDROCK,
    {
      difference: /^failed model_not_found \| failed (400|404)/,
      cases: /^status 404/,
      decision: 'Our 404 means that; the caller sees neither, for the model is one of ours.',
    },
    {
      difference: /^failed (403|500) \| failed 400/,
      cases: /^status (403|424) in a stream/,
      decision: 'The name of an exception says what its status would have been; LiteLLM says 400.',
    },
    {
      difference: /^failed 500 \| failed (408|424|503)/,
      cases: /^status (408|424|500)/,
      decision: 'All are a failure of the provider, after which another upstream is asked.',
    },
  ],
};
