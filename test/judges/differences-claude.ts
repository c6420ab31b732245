/**
 * Where LiteLLM's translation for Claude and ours differ, at Anthropic, on Vertex and on Bedrock, and the
 * decision on each, with the reason by the provider's reference.
 */
import type { Listed } from './difference.js';

/** What any provider's translation of ours does on purpose. */
export const COMMON: readonly Listed[] = [
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
    difference: /^refused top_p \| taken/,
    decision: 'Claude 4.1 to 4.6 takes one of the two and answers 400 to both: the caller gets it by name.',
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
export const ANTHROPIC: readonly Listed[] = [
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
export const BEDROCK: readonly Listed[] = [
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

/** Errors of Claude, which LiteLLM reads by their status, and in a stream not at all. */
export const CLAUDE_ERRORS: readonly Listed[] = [
  {
    difference: /^failed (400|401|403|404|413|429|503) \| failed 500/,
    cases: /in a stream/,
    decision: 'The type of an error event says what its status would have been; LiteLLM says 500 for each.',
  },
];

export const OVERLOADED: Listed = {
  difference: /^failed 503 \| failed (500|529)/,
  cases: /^status 529/,
  decision: 'Overloaded is 503 with OpenAI.',
};

/** On Vertex, classes of Anthropic's own API that have no case there. */
const NOT_ON_VERTEX = /^\^(output_config|service_tier)|^\^\(output_config/;

/** Claude 4.5 on Vertex has no schemas of its own; newer models have. */
export const VERTEX_CLAUDE: readonly Listed[] = [
  ...ANTHROPIC.filter(({ difference }) => !NOT_ON_VERTEX.test(difference.source)),
  ...CLAUDE_ERRORS,
  OVERLOADED,
  {
    difference: /^taken \| refused/,
    cases: /^service_tier$/,
    decision: 'The tier is that of our account, not of the caller.',
  },
  {
    difference: /^refused (tools\[0\]\.function\.strict|response_format) \| taken/,
    cases: /^tool strict$|effort low \+ format json_schema$/,
    decision: 'No strict tools, and no forced tool while it thinks: said by name; LiteLLM leaves either out.',
  },
  {
    difference: /^(tools|tool_choice)\b/,
    cases: /format json_schema/,
    decision:
      'The forced tool has another name, a description, and its place behind the tools of the caller, of which the model may call one.',
  },
  {
    difference: /^failed context_length_exceeded \| failed 400/,
    decision: 'The same words as at Anthropic itself, where LiteLLM knows them.',
  },
];
