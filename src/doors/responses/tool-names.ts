/**
 * The tools of a request to POST /v1/responses, by the names that they have in a chat completion. That knows
 * no namespaces: a tool of one is offered as `namespace__name`, shortened if that is too long, and a call of
 * it gets both names back. to-chat.ts, request-items.ts and response-stream.ts call it. Pure; upstream
 * worker, or for requests a counter thread if the body is large.
 *
 * Must hold: in a request with a namespace, two tools with one flat name are rejected, because nobody could
 * know which of them a call means (test/unit/doors/responses/tool-names.test.ts).
 */
import { hash } from 'node:crypto';
import { isRecord, type Members } from '../../core/json.js';
import { FieldError } from '../../providers/provider.js';

interface OfferedTool {
  readonly tool: Members;
  /** Path of the tool in the request. */
  readonly path: string;
}

interface NamesOfTool {
  readonly name: string;
  readonly namespace: string;
}

/**
 * The start of the type of hosted tools that coding agents offer by default. An upstream of chat completions
 * cannot run them, so they are left out if there are other tools and the model need not call one; else
 * to-chat.ts rejects them.
 */
const SEARCH_TYPE_START = 'web_search';

/**
 * The tools as to-chat.ts offers them, those of namespaces by their flat names. `mayChoose`: the model need
 * not call a tool. Throws a FieldError for an item that is no object, and for two tools with one flat name.
 */
export function offeredTools(tools: readonly unknown[], mayChoose: boolean): OfferedTool[] {
  const offered = tools.flatMap((tool, index): OfferedTool[] => {
    const path = `tools[${index}]`;
    if (!isRecord(tool)) throw new FieldError(path, 'must be an object');
    const { type, name, tools: inner } = tool;
    if (type !== 'namespace' || typeof name !== 'string' || !Array.isArray(inner)) return [{ tool, path }];
    return (inner as unknown[]).map((one, position) => {
      const at = `${path}.tools[${position}]`;
      if (!isRecord(one)) throw new FieldError(at, 'must be an object');
      return { tool: { ...one, name: flatName(one.name, name) }, path: at };
    });
  });
  // Without namespaces all names are the caller's own, and the upstream rejects what it does not like.
  if (namespacesIn(tools).size > 0) checkNames(offered);
  const others = offered.filter(
    ({ tool: { type } }) => !(typeof type === 'string' && type.startsWith(SEARCH_TYPE_START)),
  );
  return mayChoose && others.length > 0 ? others : offered;
}

function checkNames(offered: readonly OfferedTool[]): void {
  const names = new Set<string>();
  for (const { tool, path } of offered) {
    // to-chat.ts rejects a tool without a name.
    if (typeof tool.name !== 'string') continue;
    if (names.has(tool.name))
      throw new FieldError(`${path}.name`, `another tool has the name ${tool.name} too`);
    names.add(tool.name);
  }
}

/** The bound of a tool's name at OpenAI, Bedrock and others. Clients allow 128 in Responses. */
const NAME_CHARS_MAX = 64;
/** 64 bits: two long names of one request do not get the same. */
const DIGEST_CHARS = 16;

/**
 * The name under which a chat completion has the tool; the name itself if there is no namespace. One that is
 * too long ends with a digest of the whole. It is made of the two names alone, because a request may have
 * calls of earlier turns without their tools.
 */
export function flatName(name: unknown, namespace: unknown): unknown {
  const isInNamespace = typeof name === 'string' && typeof namespace === 'string' && namespace !== '';
  if (!isInNamespace) return name;
  const flat = `${namespace}__${name}`;
  if (flat.length <= NAME_CHARS_MAX) return flat;
  const start = flat.slice(0, NAME_CHARS_MAX - DIGEST_CHARS - 1);
  return `${start}_${hash('sha256', flat).slice(0, DIGEST_CHARS)}`;
}

/** The names of tools in namespaces, by their flat names; response-stream.ts gives them back in calls. */
export function namespacesIn(tools: unknown): ReadonlyMap<unknown, NamesOfTool> {
  const names = new Map<unknown, NamesOfTool>();
  for (const tool of Array.isArray(tools) ? (tools as unknown[]) : []) {
    if (!isRecord(tool) || tool.type !== 'namespace' || typeof tool.name !== 'string') continue;
    const namespace = tool.name;
    for (const one of Array.isArray(tool.tools) ? (tool.tools as unknown[]) : [])
      if (isRecord(one) && typeof one.name === 'string')
        names.set(flatName(one.name, namespace), { name: one.name, namespace });
  }
  return names;
}
