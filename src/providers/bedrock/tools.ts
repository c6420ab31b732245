/**
 * Translates `tools`, `tool_choice` and `response_format` of a chat completion into the form of Converse.
 * request.ts calls `responseFormOf` and then `toolsOf`; response.ts and stream.ts ask `responseToolOf`
 * whether the content comes as a tool call. No I/O; upstream worker; for requests also counter threads, if
 * the body is large.
 *
 *     response_format json_schema  outputConfig.textFormat, if the model has it and the schema allows for it
 *                                  (anthropic/schemas.ts: Bedrock knows the same part of JSON Schema); else a
 *                                  tool of that schema, whose arguments become the content
 *     response_format json_object  such a tool with any object
 *     strict: true of a tool       as in anthropic/tools.ts, for Claude 4.5 and 4.6; else left out
 *     tool_choice none             no tools; rejected if messages have tool calls, since Converse then wants
 *                                  the tools declared
 *
 * Follows Amazon Bedrock API Reference, "ToolConfiguration", "OutputConfig"; Amazon Bedrock User Guide, "Get
 * validated JSON results from models", 2026-11.
 *
 * Must hold: `responseToolOf`, by which stream.ts and response.ts read the response, decides as `toolsOf` did
 * for the same call, or a caller gets a tool call in place of content. So both use `responseFormOf`, which
 * depends on the model and the body alone (test/unit/providers/bedrock/stream.test.ts).
 */
import { exactJsonText } from '../../core/exact-json.js';
import { isRecord } from '../../core/json.js';
import { closedSchema, formatSchema, toolSchemas } from '../anthropic/schemas.js';
import { ANY_OBJECT, NO_PARAMETERS, responseToolName } from '../anthropic/tools.js';
import { type Fields, functionOf, jsonFormatOf, keepAllowed, nameIn, toolChoiceOf } from '../fields.js';
import { FieldError, type UnsignedCall } from '../provider.js';
import { addCachePoint, type Block } from './content.js';
import type { Conversation } from './messages.js';
import { factsOf, type ModelFacts, V4_5, V4_7 } from './models.js';

/** How `response_format` is written: as Converse's own member (`output`, `closed`), or as a `tool`. */
export interface ResponseForm {
  /** Members of `outputConfig`. */
  readonly output?: Block;
  /** The schema in `output`, which counts against Anthropic's bounds for strict tools. */
  readonly closed?: Block;
  readonly tool?: { readonly name: string; readonly spec: Block };
}

/** How `response_format` is written; undefined if the content has no prescribed form. Throws a FieldError. */
export function responseFormOf(
  format: unknown,
  facts: ModelFacts,
  body: UnsignedCall['body'],
): ResponseForm | undefined {
  const asked = jsonFormatOf(format);
  if (asked === undefined) return undefined;
  const { schema, name, description, isStrict } = asked;
  // `formatSchema` checks Anthropic's bounds too, which only Claude has.
  const schemaOf = facts.claude === undefined ? closedSchema : formatSchema;
  const closed =
    schema !== undefined && facts.obeysSchemas ? schemaOf(schema, { strict: isStrict }) : undefined;
  if (closed === undefined)
    return responseTool(body, description ?? 'Gives the answer.', schema ?? ANY_OBJECT);
  const jsonSchema = {
    schema: exactJsonText(closed),
    ...(typeof name === 'string' && { name }),
    ...(description !== undefined && { description }),
  };
  return { output: { textFormat: { type: 'json_schema', structure: { jsonSchema } } }, closed };
}

function responseTool(body: UnsignedCall['body'], description: string, schema: Block): ResponseForm {
  const name = responseToolName(body);
  return { tool: { name, spec: toolSpec(name, description, schema) } };
}

/** Name of the tool whose input is the content of the response; undefined if that comes as text. */
export function responseToolOf({ body, model }: UnsignedCall): string | undefined {
  const { response_format: format } = body;
  if (format === undefined || format === null) return undefined;
  return responseFormOf(format, factsOf(model), body)?.tool?.name;
}

export interface Tools {
  /** `toolConfig` of the request; undefined without tools. */
  readonly config: Block | undefined;
  /** Members of `additionalModelRequestFields`. */
  readonly modelFields: Block;
}

/**
 * The members for tools. `form`: what `responseFormOf` returned for the call. `willThink`: Claude will think.
 * While Claude thinks with a budget, it cannot be forced to call a tool. So it might not call the tool of
 * `response_format`, which is therefore unsupported.
 */
export function toolsOf(
  fields: Fields,
  facts: ModelFacts,
  { usesTools, calledTools }: Conversation,
  form: ResponseForm | undefined,
  willThink: boolean,
): Tools {
  const tools: Block[] = [];
  (fields.list('tools') ?? []).forEach((tool, index) => addTool(tools, tool, index, facts));
  const isSingle = fields.boolean('parallel_tool_calls') === false;
  if (tools.length === 0 && usesTools) {
    fields.unsupported('tools', 'must be given to Bedrock if a message has tool calls or their results');
    // Declares the called tools, because Converse rejects messages with calls of undeclared tools.
    const names = [...calledTools].filter((name) => name !== form?.tool?.name);
    tools.push(...names.map((name) => toolSpec(name, undefined, NO_PARAMETERS)));
  }
  // This comes before `closeStrictTools`: a tool that the choice excludes must not count there.
  let choice = choiceOf(fields, tools, usesTools);
  closeStrictTools(tools, form?.closed);
  const isForced = choice !== undefined && !('auto' in choice);
  const { claude } = facts;
  const cannotForce =
    claude !== undefined && (!claude.canForceTools || (willThink && claude.thinking !== 'adaptive'));
  if (isForced && cannotForce) {
    fields.unsupported('tool_choice', 'cannot force a call of this model, or while it thinks');
    choice = { auto: {} };
  }
  if (form?.tool !== undefined) {
    if (cannotForce) {
      fields.unsupported(
        'response_format',
        'must be json_schema with closed objects, and not too complex, for this model, or while it thinks',
      );
    }
    // With tools of the caller the model may call one of these first.
    else if (tools.length === 0) choice = { tool: { name: form.tool.name } };
    else if (!isForced) choice = { any: {} };
    tools.push(form.tool.spec);
  }
  if (tools.length === 0) return { config: undefined, modelFields: {} };
  const config = { tools, ...(choice !== undefined && { toolChoice: choice }) };
  return { config, modelFields: isSingle ? singleCallOf(fields, facts, choice) : {} };
}

/**
 * `parallel_tool_calls: false` as Claude's own member, because Converse has none. A model that is hidden by
 * its ARN (models.ts) gets the member too. `choice`: the value of `toolChoice`.
 */
function singleCallOf(fields: Fields, { family, version }: ModelFacts, choice: Block | undefined): Block {
  if (family !== 'hidden' && version < V4_5) {
    fields.unsupported('parallel_tool_calls', 'cannot be false for this model');
    return {};
  }
  // Bedrock wants the type of the choice once: here, or in `toolConfig.toolChoice`.
  return { tool_choice: { ...(choice === undefined && { type: 'auto' }), disable_parallel_tool_use: true } };
}

/** As in anthropic/tools.ts, for tools as `toolSpec` makes them. Cache points among them stay. */
function closeStrictTools(tools: readonly Block[], format: Block | undefined): void {
  const specs = tools.flatMap(({ toolSpec: spec }) => (isRecord(spec) && spec.strict === true ? [spec] : []));
  const schemas = specs.map(({ inputSchema }) => (inputSchema as { json: Record<string, unknown> }).json);
  toolSchemas(schemas, format).forEach((schema, index) => {
    const spec = specs[index]!;
    if (schema === undefined) delete spec.strict;
    else spec.inputSchema = { json: schema };
  });
}

function toolSpec(name: string, description: string | undefined, schema: Block, strict = false): Block {
  return {
    toolSpec: {
      name,
      ...(description !== undefined && { description }),
      inputSchema: { json: { type: 'object', ...schema } },
      ...(strict && { strict: true }),
    },
  };
}

/** Adds the caller's tool to `tools`, and its cache point if it has one. Throws a FieldError. */
function addTool(tools: Block[], tool: unknown, index: number, facts: ModelFacts): void {
  const path = `tools[${index}]`;
  if (!isRecord(tool) || tool.type !== 'function') throw new FieldError(path, 'must be a function');
  const { name, description, parameters, isStrict } = functionOf(tool.function, `${path}.function`);
  // Other models reject the member `strict`. Without it they still see the schema.
  const staysStrict = isStrict && facts.version >= V4_5 && facts.version < V4_7;
  tools.push(toolSpec(name, description, parameters ?? NO_PARAMETERS, staysStrict));
  // Nova accepts cache points after system texts and in messages only.
  if (facts.claude !== undefined || facts.family === 'hidden') addCachePoint(tools, tool, facts);
}

/** The value of `toolChoice`; undefined without one. Removes the `tools` that the choice excludes. */
function choiceOf(fields: Fields, tools: Block[], usesTools: boolean): Block | undefined {
  const choice = fields.take('tool_choice');
  if (choice === undefined || tools.length === 0) return undefined;
  const wanted = toolChoiceOf(choice, 'tool_choice');
  if (wanted === 'auto') return { auto: {} };
  if (wanted === 'required') return { any: {} };
  if (wanted === 'none') {
    if (usesTools) fields.unsupported('tool_choice', 'cannot be none for Bedrock after tool calls');
    else tools.length = 0;
    return undefined;
  }
  if ('name' in wanted) return { tool: { name: wanted.name } };
  keepAllowed(tools, wanted.allowed, ({ toolSpec: spec }) => nameIn(spec), 'tool_choice');
  return wanted.isRequired ? { any: {} } : { auto: {} };
}
