/**
 * Where LiteLLM's translation and ours differ, and the decision on each: a class of differences, in the form
 * of differencesOf, with the reason by the provider's reference.
 */
import { isRecord } from '#src/core/json.js';

export interface Difference {
  /** `PATH: OURS | JUDGE'S`; a list's positions are `*`, and a member that is missing is `-`. */
  readonly line: string;
}

const shown = (value: unknown): string => (value === undefined ? '-' : JSON.stringify(value).slice(0, 90));

/** Where the two differ, at the deepest members that both have; if one refused, that. */
export function differencesOf(ours: object, judges: object): Difference[] {
  if ('refused' in ours || 'refused' in judges || 'failed' in ours || 'failed' in judges) {
    const named = (side: object): string =>
      'refused' in side
        ? `refused ${String(side.refused)}`
        : 'failed' in side
          ? `failed ${String(side.failed)}`
          : 'taken';
    return named(ours).split(' ')[0] === named(judges).split(' ')[0]
      ? []
      : [{ line: `${named(ours)} | ${named(judges)}` }];
  }
  return differencesWithin(ours, judges, '');
}

function differencesWithin(ours: unknown, judges: unknown, path: string): Difference[] {
  if (Array.isArray(ours) && Array.isArray(judges) && ours.length === judges.length)
    return ours.flatMap((item, index) => differencesWithin(item, judges[index], `${path}.*`));
  if (isRecord(ours) && isRecord(judges))
    return [...new Set([...Object.keys(ours), ...Object.keys(judges)])].flatMap((name) =>
      differencesWithin(ours[name], judges[name], path === '' ? name : `${path}.${name}`),
    );
  if (shownWhole(ours) === shownWhole(judges)) return [];
  return [{ line: `${path}: ${shown(ours)} | ${shown(judges)}` }];
}
const shownWhole = (value: unknown): string => (value === undefined ? '-' : JSON.stringify(value));

export interface Listed {
  readonly difference: RegExp;
  /** Only in cases whose names match. */
  readonly cases?: RegExp;
  /** What is right, and why. */
  readonly decision: string;
}

/** What any provider's translation of ours does on purpose. */
const COMMON: readonly Listed[] = [
  {
    difference: /^taken \| refused/,
    cases: /^(store|verbosity|logprobs false|modalities text)$/,
    decision:
      'It does not change what the model says, or asks for what is anyway: LiteLLM wants drop_params for it.',
  },
  {
    difference: /^refused (functions|web_search_options|a_member_of_tomorrow) \| taken/,
    decision:
      'LiteLLM turns it into something near, or drops it without a word: we say that it is not supported.',
  },
];

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

/** Of Claude, wherever it is. */
const CLAUDE: readonly Listed[] = [
  {
    difference: /\| .*Operator note/,
    cases: /^system later$/,
    decision:
      'Only the first messages can be the system: a later one stays in its place as a marked text of the user, in words of ours.',
  },
  {
    difference: /^messages: /,
    cases: /^assistant refused$/,
    decision:
      "What the assistant said when it refused is its turn; LiteLLM leaves it out, and the user's turns meet.",
  },
  {
    difference: /^refused tool_choice \| taken/,
    decision: 'Thinking allows no forced tool: the provider answers 400, the caller gets it by name.',
  },
  {
    difference: /^refused temperature \| taken/,
    decision: 'Above 1, or with thinking, the provider answers 400: the caller gets it by name.',
  },
  {
    difference: /(stop_sequences|stopSequences): /,
    cases: /^stop of five$/,
    decision: "The reference has no such bound: LiteLLM cuts OpenAI's four.",
  },
  {
    difference:
      /^additionalModelRequestFields: - \| {"tool_choice"|^tool_choice: - \| {"type":"auto","disable_parallel_tool_use":false}/,
    cases: /^parallel calls allowed$/,
    decision: 'The default.',
  },
  {
    difference: /(max_tokens: 64000|inferenceConfig: -|inferenceConfig\.maxTokens: -) \| /,
    decision:
      "Nobody gave a bound: Messages gets the model's own, Converse none, whose default is that; LiteLLM takes 4096 and the budget.",
  },
  {
    difference: /^(thinking|additionalModelRequestFields): - \| .*"budget_tokens"/,
    decision:
      'The bound is too small for a budget, or the calls before had no thinking: the provider would answer 400, so effort, a wish, is dropped.',
  },
  {
    difference: /^usage\.reasoning: 0 \| \d+/,
    decision:
      'LiteLLM counts the words of thoughts where the provider reports none: our bills are its numbers.',
  },
];

/** Anthropic: https://docs.anthropic.com/en/api/messages. */
const ANTHROPIC: readonly Listed[] = [
  ...COMMON.slice(0, 1),
  ...CLAUDE,
  {
    difference: /^refused (web_search_options|a_member_of_tomorrow) \| taken/,
    decision:
      'LiteLLM turns it into something near, or drops it without a word: we say that it is not supported.',
  },
  {
    difference: /^taken \| refused/,
    cases: /^functions$/,
    decision: 'The form before `tools`, which clients still send.',
  },
  {
    difference: /^refused messages\[0\]\.content\[0\]\.(image_url\.url|type) \| taken/,
    cases: /^(image of no type|audio)$/,
    decision: 'Claude takes no audio, and an image has a media type: LiteLLM guesses one, and drops audio.',
  },
  { difference: /\.title: "a\.pdf" \| -/, cases: /^file$/, decision: 'The name of a document is its title.' },
  { difference: /^tools\.\*\.type: - \| "custom"/, decision: 'The default.' },
  {
    difference: /^messages\.\*\.content\.\*\.content: - \| \[{"type":"text","text":""}\]/,
    cases: /^tool result empty$/,
    decision: 'A result may have no content, but no empty text.',
  },
  {
    difference: /^tools: - \| \[{"name":"dummy_tool"/,
    cases: /^two rounds/,
    decision: 'Calls may be in messages without `tools`: no tool is invented.',
  },
  {
    difference: /^messages\.\*\.content\.\*\.data: "cmVk.* \| "redacted"/,
    decision: 'Data of redacted thinking goes back as it came; LiteLLM decodes base64.',
  },
  {
    difference: /^messages: \[{"role":"user","content":\[{"type":"text","text":"Please continue\."/,
    cases: /^begins with the assistant$/,
    decision: 'The first message must be of the user.',
  },
  { difference: /^(temperature|top_p): - \| 1$/, decision: 'The default.' },
  {
    difference: /^refused stop\[\d\] \| taken/,
    decision:
      'The reference refuses stop sequences of white space; LiteLLM sends them and the caller gets its 400.',
  },
  { difference: /^service_tier: - \| "auto"/, decision: 'The default; the tier is that of our account.' },
  {
    difference: /^tools\.\*\.(strict: true|input_schema\.\$schema: .*) \| -/,
    decision: 'Both are in the reference: `strict` of a tool, and a schema as it is.',
  },
  { difference: /^tools: - \| \[\]/, cases: /^no tool$/, decision: 'None is none.' },
  {
    difference: /^(tools|tool_choice): .*json_response.* \| -/,
    cases: /^format json_object$/,
    decision: 'A forced tool gives an object; LiteLLM drops the format without a schema.',
  },
  {
    difference: /^(output_config: .* \| -|output_format: - \| .*)$/,
    decision:
      'output_config.format is its name since it is no trial any more, output_format the name of the trial.',
  },
  {
    difference: /^finish: "stop" \| "length"/,
    cases: /^stop pause_turn/,
    decision: 'No bound was reached; only tools that run at Anthropic pause, and none is ever asked for.',
  },
];

/** Bedrock: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html. */
const BEDROCK: readonly Listed[] = [
  ...COMMON.slice(0, 1),
  ...CLAUDE,
  {
    difference: /^refused (a_member_of_tomorrow) \| taken/,
    decision: 'LiteLLM puts it among the fields of the model, which answers 400.',
  },
  {
    difference: /^messages: \[{"role":"user","content":\[{"text":"Please continue\."/,
    cases: /^begins with the assistant$/,
    decision: 'The first message must be of the user.',
  },
  {
    difference: /^messages: .*"audio"/,
    cases: /^audio$/,
    decision: 'Converse has audio; LiteLLM drops it without a word.',
  },
  {
    difference: /document\.name: /,
    cases: /^file$/,
    decision: "A document's name: its file's, without what is not allowed.",
  },
  {
    difference: /inputSchema\.json\.required: - \| \[\]|toolSpec\.description: - \| "/,
    decision: 'LiteLLM fills in an empty list and the name for a description: neither is needed.',
  },
  {
    difference: /inputSchema\.json\.(\$schema|\$defs|properties\.x\.)/,
    cases: /^tool with \$(defs|schema)$/,
    decision: 'A schema goes as it is; LiteLLM writes references out.',
  },
  {
    difference: /^refused tools \| taken/,
    cases: /^two rounds/,
    decision:
      'Converse refuses calls in messages without toolConfig; LiteLLM invents a tool, which drop_unsupported does here.',
  },
  {
    difference: /redactedContent: "Y21W.* \| "cmVk/,
    decision:
      'A blob is base64 of what the caller got, in both directions; LiteLLM encodes only what is no base64 yet.',
  },
  {
    difference: /^taken \| refused/,
    cases: /^choice none$/,
    decision: 'Without tools in the messages, no tool is declared: none can be called.',
  },
  {
    difference: /^requestMetadata: .* \| -/,
    decision: 'metadata is requestMetadata, which is in the logs of the account.',
  },
  { difference: /^serviceTier: - \| {"type":"default"}/, decision: 'The default.' },
  {
    difference: /^toolConfig: .*json_response.* \| -/,
    cases: /^format json_object$/,
    decision: 'A forced tool gives an object; LiteLLM drops the format without a schema.',
  },
  {
    difference: /^outputConfig\.textFormat\.structure\.jsonSchema\.schema: /,
    decision: 'The same schema, in a text without blanks.',
  },
  {
    difference: /^additionalModelResponseFieldPaths: - \| /,
    decision: 'Asked for if it thinks.',
  },
  {
    difference: /^toolConfig\.toolChoice\.(any|tool|auto): /,
    decision:
      'Thinking allows no forced tool; LiteLLM makes it a free choice, which the caller did not ask for.',
  },
];

/** By the name of the form. */
export const LISTED: Readonly<Record<string, readonly Listed[]>> = {
  gemini: GEMINI,
  anthropic: ANTHROPIC,
  bedrock: BEDROCK,
};
