/**
 * Tools, the choice among them, and a JSON schema for the response, which some models get as one more tool.
 * request.ts calls it, and the readers ask it what became of the schema. Upstream worker.
 *
 * Followed: Amazon Bedrock API Reference, "ToolConfiguration", "OutputConfig"; Amazon Bedrock User Guide,
 * "Get validated JSON results from models", 2026-11.
 */
import { isRecord } from '../../core/json.js';
import type { Fields } from '../fields.js';
import { FieldError, type ProviderCall } from '../provider.js';
import { ContentWriter, type Block } from './content.js';
import type { Conversation } from './messages.js';
import { factsOf, type ModelFacts } from './models.js';

/** The tool whose arguments are the response. LiteLLM's name for it. */
export const JSON_TOOL = 'json_tool_call';

export interface Format {
  /** Of `outputConfig`; undefined if it is a tool. */
  readonly native: Block | undefined;
  readonly tool: Block | undefined;
}

/** What `response_format` asks for, if it is a schema. */
export function formatOf(fields: Fields, facts: ModelFacts): Format | undefined {
  const format = fields.record('response_format');
  if (format === undefined || format.type === 'text') return undefined;
  if (format.type !== 'json_schema') {
    fields.unsupported('response_format', 'must be text or json_schema for Bedrock');
    return undefined;
  }
  const { json_schema: named } = format;
  if (!isRecord(named) || !isRecord(named.schema)) {
    throw new FieldError('response_format.json_schema.schema', 'must be an object');
  }
  const { schema, name, description } = named;
  const described = typeof description === 'string' && description !== '' ? { description } : {};
  if (!facts.jsonSchema) {
    const toolSpec = { name: JSON_TOOL, ...described, inputSchema: { json: schema } };
    return { native: undefined, tool: { toolSpec } };
  }
  const jsonSchema = {
    schema: JSON.stringify(closed(schema)),
    ...(typeof name === 'string' && { name }),
    ...described,
  };
  return {
    native: { textFormat: { type: 'json_schema', structure: { jsonSchema } } },
    tool: undefined,
  };
}

/** Whether the response comes as arguments of JSON_TOOL. */
export function hasJsonTool({ body, model }: ProviderCall): boolean {
  const { response_format: format } = body;
  return isRecord(format) && format.type === 'json_schema' && !factsOf(model).jsonSchema;
}

/** Bedrock refuses a schema whose objects do not say whether they are open. */
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed);
  if (!isRecord(schema)) return schema;
  const result: Record<string, unknown> = { ...schema };
  const isObject = schema.type === 'object' || (schema.type === undefined && isRecord(schema.properties));
  if (isObject && schema.additionalProperties === undefined) result.additionalProperties = false;
  for (const name of ['properties', '$defs', 'definitions']) {
    const named = schema[name];
    if (!isRecord(named)) continue;
    result[name] = Object.fromEntries(Object.entries(named).map(([key, value]) => [key, closed(value)]));
  }
  for (const name of ['items', 'anyOf', 'allOf', 'oneOf']) {
    if (schema[name] !== undefined) result[name] = closed(schema[name]);
  }
  return result;
}

export interface Tools {
  readonly config: Block | undefined;
  /** Of `additionalModelRequestFields`. */
  readonly more: Block;
}

export function toolConfigOf(
  fields: Fields,
  facts: ModelFacts,
  conversation: Conversation,
  format: Format | undefined,
  thinks: boolean,
): Tools {
  let choice = fields.take('tool_choice');
  const parallel = fields.boolean('parallel_tool_calls');
  let tools = (fields.list('tools') ?? []).flatMap((tool, index) => toolOf(tool, index, facts));
  if (tools.length === 0 && conversation.usesTools) {
    fields.unsupported('tools', 'must be given to Bedrock if a message has tool calls or their results');
    tools = [...conversation.called].map((name) => ({
      toolSpec: { name, inputSchema: { json: { type: 'object' } } },
    }));
  }
  if (choice === 'none') {
    // Converse has no such choice. Without tools none is called; but calls of before need them.
    if (conversation.usesTools)
      fields.unsupported('tool_choice', 'cannot be none for Bedrock after tool calls');
    else tools = [];
    choice = undefined;
  }
  let toolChoice = choiceOf(choice, fields);
  if (format?.tool !== undefined) {
    // Claude refuses to be forced while it thinks.
    if (!thinks && (toolChoice === undefined || 'auto' in toolChoice)) {
      toolChoice = tools.length === 0 ? { tool: { name: JSON_TOOL } } : { any: {} };
    }
    tools = [...tools, format.tool];
  }
  if (tools.length === 0) return { config: undefined, more: {} };
  const config = { tools, ...(toolChoice !== undefined && { toolChoice }) };
  return { config, more: parallel === false ? oneCallOnly(fields, facts, toolChoice) : {} };
}

function oneCallOnly(fields: Fields, { family, version }: ModelFacts, toolChoice: Block | undefined): Block {
  if (family !== 'hidden' && version < 4.5) {
    fields.unsupported('parallel_tool_calls', 'cannot be false for this model');
    return {};
  }
  // The type is said once, here or in toolConfig.
  const type = toolChoice === undefined ? { type: 'auto' } : {};
  return { tool_choice: { ...type, disable_parallel_tool_use: true } };
}

function toolOf(tool: unknown, index: number, facts: ModelFacts): Block[] {
  const path = `tools[${index}]`;
  if (!isRecord(tool) || tool.type !== 'function') throw new FieldError(`${path}.type`, 'must be function');
  const { function: named } = tool;
  if (!isRecord(named) || typeof named.name !== 'string') {
    throw new FieldError(`${path}.function.name`, 'must be a string');
  }
  const { name, description, parameters, strict } = named;
  if (parameters !== undefined && parameters !== null && !isRecord(parameters)) {
    throw new FieldError(`${path}.function.parameters`, 'must be an object');
  }
  // Without it the model still sees the schema. Families that do not know the member refuse it.
  const isStrict =
    strict === true && facts.family === 'claude' && facts.version >= 4.5 && facts.version < 4.7;
  const toolSpec = {
    name,
    ...(typeof description === 'string' && description !== '' && { description }),
    inputSchema: { json: parameters ?? { type: 'object', properties: {} } },
    ...(isStrict && { strict: true }),
  };
  // Nova marks system texts and messages only.
  const marks =
    facts.family === 'claude' || facts.family === 'hidden' ? new ContentWriter(facts).cachePoint(tool) : [];
  return [{ toolSpec }, ...marks];
}

function choiceOf(choice: unknown, fields: Fields): Block | undefined {
  if (choice === undefined) return undefined;
  if (choice === 'auto') return { auto: {} };
  if (choice === 'required') return { any: {} };
  if (isRecord(choice) && choice.type === 'function') {
    const { function: named } = choice;
    if (!isRecord(named) || typeof named.name !== 'string') {
      throw new FieldError('tool_choice.function.name', 'must be a string');
    }
    return { tool: { name: named.name } };
  }
  fields.unsupported('tool_choice');
  return undefined;
}
