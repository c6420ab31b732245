/**
 * The tools of a request to POST /v1/responses, by their names in a chat completion. A chat completion knows
 * no namespaces: a tool in a namespace is offered by its _flat name_ `namespace__name`, shortened if it is
 * too long, and a call of the tool gets both names back. to-chat.ts, request-items.ts and response-stream.ts
 * use these functions. Pure; upstream worker, or for requests a counter thread if the body is large.
 *
 * Must hold: in a request with a namespace, two tools with one flat name are rejected, because nobody could
 * know which of them a call means (test/unit/doors/responses/tool-names.test.ts).
 */
import { hash } from 'node:crypto';
import { isRecord, type Members } from '../../core/json.js';
import { FieldError } from '../../providers/provider.js';

interface OfferedTool {
  readonly tool: Members;
  readonly path: string;
}

interface NamesOfTool {
  readonly name: string;
  readonly namespace: string;
}

/**
 * How the types of search tools start. OpenAI runs these itself, and no upstream of chat completions can. But
 * coding agents offer them by default. So they are left out if there are other tools and the model need not
 * call one; otherwise to-chat.ts rejects them.
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
    return (inner as unknown[]).map((innerTool, position) => {
      const innerPath = `${path}.tools[${position}]`;
      if (!isRecord(innerTool)) throw new FieldError(innerPath, 'must be an object');
      return { tool: { ...innerTool, name: flatName(innerTool.name, name) }, path: innerPath };
    });
  });
  // Without namespaces all names are the caller's own, and the upstream rejects what it does not like.
  if (namesByFlatName(tools).size > 0) checkNames(offered);
  const withoutSearch = offered.filter(
    ({ tool: { type } }) => !(typeof type === 'string' && type.startsWith(SEARCH_TYPE_START)),
  );
  return mayChoose && withoutSearch.length > 0 ? withoutSearch : offered;
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
/** 64 bits, so that two long names of one request do not get the same digest by chance. */
const DIGEST_CHARS = 16;

/**
 * The flat name of the tool; the name itself if there is no namespace. A flat name that is too long is cut,
 * and ends with a digest of the whole. The result depends on the two names alone, because a request may have
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

/** Both names of the tools in namespaces, by flat name; response-stream.ts writes them into calls. */
export function namesByFlatName(tools: unknown): ReadonlyMap<unknown, NamesOfTool> {
  const names = new Map<unknown, NamesOfTool>();
  for (const tool of Array.isArray(tools) ? (tools as unknown[]) : []) {
    if (!isRecord(tool) || tool.type !== 'namespace' || typeof tool.name !== 'string') continue;
    const namespace = tool.name;
    for (const inner of Array.isArray(tool.tools) ? (tool.tools as unknown[]) : [])
      if (isRecord(inner) && typeof inner.name === 'string')
        names.set(flatName(inner.name, namespace), { name: inner.name, namespace });
  }
  return names;
}
