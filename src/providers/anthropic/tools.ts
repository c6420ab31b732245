/**
 * Translates `tools`, `tool_choice` and `response_format` of a chat completion into Anthropic's form.
 * request.ts calls `toolMembersOf`; response.ts and stream.ts ask `responseToolOf` whether the content comes
 * as a tool call. bedrock/tools.ts uses `responseToolName` and the two schemas. No I/O; upstream worker; for
 * requests also counter threads, if the body is large.
 *
 * Follows platform.claude.com, pages "Define tools", "Parallel tool use", "Strict tool use" and "Structured
 * outputs", 2026-11.
 *
 *     response_format json_schema  output_config.format, if the model has it and the schema allows for it
 *                                  (schemas.ts); else the model must call a tool of that schema, whose
 *                                  arguments become the content
 *     response_format json_object  such a tool with any object
 *     strict: true of a tool       the same, with the schema in the subset that Anthropic enforces; left out
 *                                  if the schema is not in it, or all strict tools, with the schema of the
 *                                  response, exceed Anthropic's bounds
 *     tools that Anthropic runs    rejected: searches and containers are billed apart from the tokens
 *
 * Must hold: `responseToolOf` decides as `toolMembersOf` did for the same call, or a caller gets a tool call
 * in place of content (test/unit/providers/anthropic/response.test.ts,
 * test/unit/providers/anthropic/stream.test.ts).
 */
import { isRecord, type Members } from '../../core/json.js';
import { type Fields, functionOf, jsonFormatOf, keepAllowed, nameIn, toolChoiceOf } from '../fields.js';
import { FieldError, type UnsignedCall } from '../provider.js';
import { withCacheControl, type Block } from './content.js';
import { traitsOf, type ModelTraits } from './models.js';
import { formatSchema, toolSchemas } from './schemas.js';

/** Name of the tool that stands in for `response_format`, unless a tool of the caller has that name. */
const RESPONSE_TOOL = 'json_response';

/** Schemas of tools: one without parameters, and one that accepts any object. bedrock/tools.ts uses both. */
export const NO_PARAMETERS = { type: 'object', properties: {} };
export const ANY_OBJECT = { type: 'object', additionalProperties: true };

export interface ToolMembers {
  readonly tools: Block[];
  readonly choice: Record<string, unknown> | undefined;
  readonly format: Record<string, unknown> | undefined;
  readonly isFormatByTool: boolean;
}

/** `body`: the one that `fields` reads. Throws a FieldError. */
export function toolMembersOf(fields: Fields, traits: ModelTraits, body: UnsignedCall['body']): ToolMembers {
  const tools = toolsOf(fields, traits);
  // This comes before `closeStrictTools`: a tool that the choice excludes must not count there.
  const choice = choiceOf(fields, tools, traits);
  const response = responseFormOf(fields.take('response_format'), traits, body);
  closeStrictTools(tools, response?.format?.schema);
  if (response?.tool === undefined) return { tools, choice, format: response?.format, isFormatByTool: false };
  if (!traits.canForceTools) {
    fields.unsupported(
      'response_format',
      'must be json_schema with closed objects, and not too complex: Claude has no other here',
    );
    return { tools, choice, format: undefined, isFormatByTool: false };
  }
  // With tools of the caller the model may call one of them first.
  const mayCallOthers = tools.length > 0 && choice?.type !== 'none';
  tools.push(response.tool);
  const responseToolChoice = { type: 'tool', name: response.tool.name };
  const anyToolChoice = choice?.type === 'tool' ? choice : { ...choice, type: 'any' };
  const forcedChoice = mayCallOthers ? anyToolChoice : responseToolChoice;
  return { tools, choice: forcedChoice, format: undefined, isFormatByTool: true };
}

/** Name of the tool whose arguments are the content of the response; undefined if that comes as text. */
export function responseToolOf({ settings, body, model }: UnsignedCall): string | undefined {
  const { response_format: format } = body;
  if (format === undefined || format === null) return undefined;
  const traits = traitsOf(model, { onVertex: settings.name === 'vertex' });
  return traits.canForceTools ? responseFormOf(format, traits, body)?.tool?.name : undefined;
}

/**
 * The name of the tool that stands in for `response_format`: one that no tool of the caller has, also none
 * that `tool_choice` leaves out. bedrock/tools.ts calls it too.
 */
export function responseToolName({ tools, functions }: UnsignedCall['body']): string {
  const names = new Set<unknown>();
  for (const list of [tools, functions])
    for (const tool of Array.isArray(list) ? (list as unknown[]) : []) names.add(nameIn(tool));
  let name = RESPONSE_TOOL;
  for (let number = 2; names.has(name); number++) name = `${RESPONSE_TOOL}_${number}`;
  return name;
}

/** Whether the caller used `functions`, the `tools` of before 2023. Such a caller gets `function_call`. */
export function callsFunctions({ body }: UnsignedCall): boolean {
  return Array.isArray(body.functions) && !Array.isArray(body.tools);
}

/** The caller's tools in Anthropic's form, with their own schemas. Throws a FieldError. */
function toolsOf(fields: Fields, traits: ModelTraits): Block[] {
  const tools: Block[] = [];
  // Both are taken, because what nobody took is rejected.
  const callersTools = fields.list('tools');
  const callersFunctions = fields.list('functions');
  (callersTools ?? []).forEach((tool, index) => {
    const path = `tools[${index}]`;
    if (!isRecord(tool)) throw new FieldError(path, 'must be an object');
    if (tool.type === 'function')
      tools.push(withCacheControl(toolOf(tool.function, `${path}.function`, fields, traits), tool, path));
    else fields.unsupported(`${path}.type`, 'must be function: the gateway has no prices for other tools');
  });
  if (callersTools === undefined)
    (callersFunctions ?? []).forEach((definition, index) =>
      tools.push(toolOf(definition, `functions[${index}]`, fields, traits)),
    );
  return tools;
}

function toolOf(definition: unknown, path: string, fields: Fields, traits: ModelTraits): Block {
  const { name, description, parameters, isStrict } = functionOf(definition, path);
  const tool: Block = { name };
  if (description !== undefined) tool.description = description;
  tool.input_schema = { type: 'object', ...(parameters ?? NO_PARAMETERS) };
  if (isStrict) {
    if (traits.obeysSchemas) tool.strict = true;
    else fields.unsupported(`${path}.strict`);
  }
  return withCacheControl(tool, definition as Members, path);
}

/** The value of `tool_choice`, if needed. Removes from `tools` each tool that the choice does not allow. */
function choiceOf(fields: Fields, tools: Block[], traits: ModelTraits): Record<string, unknown> | undefined {
  const isLegacy = fields.take('tools') === undefined;
  // `function_call` is taken even beside `tools`, or it would be rejected.
  const functionCall = fields.take('function_call');
  const path = isLegacy ? 'function_call' : 'tool_choice';
  const callersChoice = fields.take('tool_choice') ?? (isLegacy ? functionCall : undefined);
  // A message of the old interface (`functions`) can have one call only.
  const isSingle =
    fields.boolean('parallel_tool_calls') === false || (isLegacy && fields.take('functions') !== undefined);
  if (tools.length === 0) return undefined;
  const wanted = toolChoiceOf(callersChoice ?? 'auto', path);
  if (wanted === 'none') return { type: 'none' };
  let choice: Record<string, unknown> = { type: wanted === 'required' ? 'any' : 'auto' };
  if (typeof wanted !== 'string' && 'name' in wanted) choice = { type: 'tool', name: wanted.name };
  else if (typeof wanted !== 'string') {
    keepAllowed(tools, wanted.allowed, ({ name }) => name, path);
    if (wanted.isRequired) choice = { type: 'any' };
  }
  if (!traits.canForceTools && choice.type !== 'auto') {
    fields.unsupported(path, 'cannot force a call of this model');
    choice = { type: 'auto' };
  }
  if (isSingle) choice.disable_parallel_tool_use = true;
  else if (callersChoice === undefined) return undefined;
  return choice;
}

/**
 * Gives the strict tools schemas that Anthropic enforces. A tool for which there is none (`toolSchemas`)
 * loses `strict` and keeps its own schema, which the model reads.
 */
function closeStrictTools(tools: readonly Block[], format: Record<string, unknown> | undefined): void {
  const strictTools = tools.filter(({ strict }) => strict === true);
  // `toolOf` has made the schema.
  const schemas = strictTools.map(({ input_schema: schema }) => schema as Record<string, unknown>);
  toolSchemas(schemas, format).forEach((schema, index) => {
    const tool = strictTools[index]!;
    if (schema === undefined) delete tool.strict;
    else tool.input_schema = schema;
  });
}

/** Has one of the two: the value of `output_config.format`, or the response tool. */
interface ResponseForm {
  readonly format?: { readonly type: 'json_schema'; readonly schema: Record<string, unknown> };
  readonly tool?: Block & { readonly name: string };
}

/**
 * How `response_format` is written, natively or as a tool; undefined if the content has no prescribed form.
 * Depends on nothing but its parameters, so that `responseToolOf` decides as `toolMembersOf` did.
 */
function responseFormOf(
  responseFormat: unknown,
  traits: ModelTraits,
  body: UnsignedCall['body'],
): ResponseForm | undefined {
  const format = jsonFormatOf(responseFormat);
  if (format === undefined) return undefined;
  const { schema, description = 'Gives the answer.', isStrict } = format;
  const closed =
    schema !== undefined && traits.obeysSchemas ? formatSchema(schema, { strict: isStrict }) : undefined;
  if (closed !== undefined) return { format: { type: 'json_schema', schema: closed } };
  // Anthropic rejects a tool whose schema has no type, such as `{}` or a schema that is a `$ref` alone.
  const inputSchema = { type: 'object', ...(schema ?? ANY_OBJECT) };
  return { tool: { name: responseToolName(body), description, input_schema: inputSchema } };
}
