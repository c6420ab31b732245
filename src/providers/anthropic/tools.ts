/**
 * Translates `tools`, `tool_choice` and `response_format` of a chat completion into Anthropic's form.
 * request.ts calls `toolMembersOf`; response.ts and stream.ts ask `responseToolOf` whether the content comes
 * as a tool call. bedrock/tools.ts uses the functions for schemas. No I/O; upstream worker; for requests also
 * counter threads, if the body is large.
 *
 * Follows platform.claude.com, pages "Define tools", "Parallel tool use", "Strict tool use" and "Structured
 * outputs", 2026-11.
 *
 *     response_format json_schema  output_config.format, if the model has it and the schema allows for it
 *                                  (formatSchema); else the model must call a tool of that schema, whose
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
import { exactJsonText } from '../../core/exact-json.js';
import { isRecord, type Members } from '../../core/json.js';
import { type Fields, functionOf, jsonFormatOf, keepAllowed, nameIn, toolChoiceOf } from '../fields.js';
import { FieldError, type UnsignedCall } from '../provider.js';
import { withCacheControl, type Block } from './content.js';
import { traitsOf, type ModelTraits } from './models.js';

/** Name of the tool that stands in for `response_format`, unless a tool of the caller has that name. */
const RESPONSE_TOOL = 'json_response';

/** Schemas of tools: one without parameters, and one that accepts any object. bedrock/tools.ts uses both. */
export const NO_PARAMETERS = { type: 'object', properties: {} };
export const ANY_OBJECT = { type: 'object', additionalProperties: true };

/** The members of Anthropic's request that come from tools and the response format. */
export interface ToolMembers {
  readonly tools: Block[];
  readonly choice: Record<string, unknown> | undefined;
  /** The value of `output_config.format`; undefined without one. */
  readonly format: Record<string, unknown> | undefined;
  /** Whether the last tool stands in for `response_format`. */
  readonly isFormatByTool: boolean;
}

/** `body`: the one that `fields` reads. Throws a FieldError. */
export function toolMembersOf(fields: Fields, traits: ModelTraits, body: UnsignedCall['body']): ToolMembers {
  const tools = toolsOf(fields, traits);
  // This comes before `closeStrictTools`: a tool that the choice excludes must not count there.
  const choice = choiceOf(fields, tools, traits);
  const response = responseFormOf(fields.take('response_format'), traits, body);
  closeStrictTools(tools, INPUT_SCHEMA, response?.format?.schema);
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
  // Both are taken, because `fields.finish` rejects what nobody took.
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

/** A tool in Anthropic's form. `path`: of `definition`, the function's. Throws a FieldError. */
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
  // `function_call` is taken even beside `tools`, or `fields.finish` would reject it.
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

/** Has one of the two members: the value of `output_config.format`, or the response tool. */
interface ResponseForm {
  readonly format?: Record<string, unknown>;
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
  return { tool: { name: responseToolName(body), description, input_schema: schema ?? ANY_OBJECT } };
}

/** Values of `format` that Anthropic enforces. */
const STRING_FORMATS: ReadonlySet<unknown> = new Set(
  'date-time time date duration email hostname uri ipv4 ipv6 uuid'.split(' '),
);
/** Keywords of JSON Schema that stay as they are; then those whose value is a list, or a map, of schemas. */
const KEPT: ReadonlySet<string> = new Set(['type', 'enum', 'const', '$ref', 'title', 'required', 'default']);
const LIST_KEYWORDS: ReadonlySet<string> = new Set(['anyOf', 'oneOf', 'allOf']);
const MAP_KEYWORDS: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions']);
/** Deeper schemas are not rewritten, which bounds the recursion. No schema in use is so deep. */
const DEPTH_MAX = 64;

/**
 * Anthropic's bounds of a request: strict tools; and, in all their schemas and that of
 * `output_config.format` together, optional properties and places with more than one type. Anthropic
 * responds with 400 to a request beyond a bound (page "Structured outputs", "Schema complexity limits";
 * camel-ai/camel pull request 4171, read 2026-11).
 */
const STRICT_TOOLS_MAX = 20;
const STRICT_OPTIONAL_MAX = 24;
const STRICT_UNIONS_MAX = 16;

/** Thrown by `closedAtDepth` for a schema outside of the subset; `closedSchema` catches it. */
class Inexpressible extends Error {}

/**
 * A caller's JSON schema in the subset that Anthropic enforces (transformJSONSchema of @anthropic-ai/sdk
 * 1.12): every object is closed, `oneOf` becomes `anyOf`, and limits that Anthropic does not enforce, such as
 * `maxLength`, go into the description, where the model reads them. bedrock/tools.ts calls this too, for
 * models that are not Claude.
 *
 * Undefined if the schema has an object that allows members of any name, which Anthropic cannot enforce, or
 * is nested too deeply. `strict`: OpenAI rejects such objects, so every object is closed, whatever its
 * `additionalProperties` is (test/unit/providers/anthropic/models.test.ts).
 */
export function closedSchema(
  schema: Record<string, unknown>,
  { strict }: { readonly strict: boolean },
): Record<string, unknown> | undefined {
  try {
    return closedAtDepth(schema, strict, 0);
  } catch (error) {
    if (error instanceof Inexpressible) return undefined;
    throw error;
  }
}

/** Where a protocol has the schema of a tool's arguments. */
interface SchemaPlace {
  readonly get: (tool: Block) => Record<string, unknown>;
  readonly set: (tool: Block, schema: Record<string, unknown>) => void;
}

const INPUT_SCHEMA: SchemaPlace = {
  get: ({ input_schema: schema }) => schema as Record<string, unknown>,
  set(tool, schema) {
    tool.input_schema = schema;
  },
};

/**
 * Closes the schemas of those `tools` that have `strict: true`, in the tools themselves. A tool whose schema
 * cannot be closed loses `strict` and keeps its own schema, which the model reads. So do all, if the schemas,
 * with `format`, exceed Anthropic's bounds: Anthropic would reject the whole request. bedrock/tools.ts calls
 * this too. `format`: what `formatSchema` returned; undefined without one.
 */
export function closeStrictTools(tools: readonly Block[], place: SchemaPlace, format: unknown): void {
  const strictTools = tools.filter((tool) => tool.strict === true);
  // Not `strict: true`: an object of any members would be closed, and the tool could get no arguments.
  const closed = strictTools.map((tool) => closedSchema(place.get(tool), { strict: false }));
  const hasTooMany = closed.filter((schema) => schema !== undefined).length > STRICT_TOOLS_MAX;
  const isBeyond = hasTooMany || isTooComplex([...closed, format]);
  strictTools.forEach((tool, index) => {
    const schema = isBeyond ? undefined : closed[index];
    if (schema === undefined) delete tool.strict;
    else place.set(tool, schema);
  });
}

/**
 * The schema of a response as `closedSchema` returns it. Undefined also if the schema alone exceeds
 * Anthropic's bounds. bedrock/tools.ts calls this too.
 */
export function formatSchema(
  schema: Record<string, unknown>,
  options: { readonly strict: boolean },
): Record<string, unknown> | undefined {
  const closed = closedSchema(schema, options);
  return isTooComplex([closed]) ? undefined : closed;
}

/** Whether closed schemas together exceed Anthropic's bounds. An undefined entry counts nothing. */
function isTooComplex(schemas: readonly unknown[]): boolean {
  const counts = { optional: 0, unions: 0 };
  for (const schema of schemas) addCounts(schema, counts);
  return counts.optional > STRICT_OPTIONAL_MAX || counts.unions > STRICT_UNIONS_MAX;
}

/** Adds to `counts` what is in `schema`, which is closed, at any depth up to DEPTH_MAX. */
function addCounts(schema: unknown, counts: { optional: number; unions: number }): void {
  if (!isRecord(schema)) return;
  const { type, properties, required, anyOf, allOf, items, $defs, definitions } = schema;
  if (Array.isArray(anyOf) || Array.isArray(type)) counts.unions++;
  const requiredNames = new Set<unknown>(Array.isArray(required) ? required : []);
  for (const name in isRecord(properties) ? properties : {}) if (!requiredNames.has(name)) counts.optional++;
  for (const map of [properties, $defs, definitions])
    if (isRecord(map)) for (const inner of Object.values(map)) addCounts(inner, counts);
  for (const list of [anyOf, allOf])
    if (Array.isArray(list)) for (const inner of list as unknown[]) addCounts(inner, counts);
  addCounts(items, counts);
}

/** As `closedSchema`, for a schema at any depth. Throws an Inexpressible in place of returning undefined. */
function closedAtDepth(schema: unknown, strict: boolean, depth: number): Record<string, unknown> {
  if (!isRecord(schema) || depth > DEPTH_MAX) throw new Inexpressible();
  const result: Record<string, unknown> = {};
  const limits: string[] = [];
  for (const name in schema) {
    const value = schema[name];
    if (KEPT.has(name)) result[name] = value;
    else if (MAP_KEYWORDS.has(name) && isRecord(value))
      result[name] = Object.fromEntries(
        Object.entries(value).map(([key, inner]) => [key, closedAtDepth(inner, strict, depth + 1)]),
      );
    else if (LIST_KEYWORDS.has(name) && Array.isArray(value))
      result[name === 'oneOf' ? 'anyOf' : name] = value.map((inner: unknown) =>
        closedAtDepth(inner, strict, depth + 1),
      );
    else if (name === 'items' && isRecord(value)) result.items = closedAtDepth(value, strict, depth + 1);
    else if (name === 'format' && STRING_FORMATS.has(value)) result.format = value;
    else if (name === 'minItems' && (value === 0 || value === 1)) result.minItems = value;
    else if (name === 'additionalProperties') {
      if (value !== false && !strict) throw new Inexpressible();
      // Any other keyword may be a limit, which the model then reads in the description.
    } else if (name !== 'description' && name !== '$schema') limits.push(`${name}: ${exactJsonText(value)}`);
  }
  if (schema.type === 'object' || isRecord(schema.properties)) {
    if (!isRecord(schema.properties) && !strict) throw new Inexpressible();
    result.additionalProperties = false;
  }
  const description = typeof schema.description === 'string' ? schema.description : '';
  if (limits.length > 0)
    result.description = `${description}${description === '' ? '' : '\n\n'}{${limits.join(', ')}}`;
  else if (description !== '') result.description = description;
  return result;
}
