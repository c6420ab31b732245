/**
 * Flattens the tools of a request to POST /v1/responses for a chat completion, which has no namespaces: a
 * tool of a namespace is offered as `namespace__name`, and a call of it gets both names back. to-chat.ts
 * calls it for the request, response-stream.ts for the calls. Pure; upstream worker; for requests also
 * counter threads, if the body is large.
 *
 * Must hold: two tools with one flat name are rejected, because nobody could know which of them a call means
 * (test/unit/doors/responses/offered-tools.test.ts).
 */
import { isRecord } from '../../core/json.js';
import { FieldError } from '../../providers/provider.js';

type Members = Readonly<Record<string, unknown>>;

export interface OfferedTool {
  readonly tool: Members;
  /** Path of the tool in the request. */
  readonly path: string;
}

interface Named {
  readonly name: string;
  readonly namespace: string;
}

/**
 * The start of the type of hosted tools that coding agents offer by default. An upstream of chat completions
 * cannot run them, so they are left out if there are other tools and the model need not call one; else
 * to-chat.ts rejects them.
 */
const SEARCH = 'web_search';

/**
 * `mayChoose`: the model need not call a tool. Throws a FieldError for an item that is no object, and for two
 * tools with one flat name.
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
  const names = new Set<unknown>();
  for (const { tool, path } of namespacesIn(tools).size === 0 ? [] : offered) {
    if (typeof tool.name !== 'string') continue;
    if (names.has(tool.name))
      throw new FieldError(`${path}.name`, `another tool has the name ${tool.name} too`);
    names.add(tool.name);
  }
  const others = offered.filter(
    ({ tool: { type } }) => !(typeof type === 'string' && type.startsWith(SEARCH)),
  );
  return mayChoose && others.length > 0 ? others : offered;
}

/** The name under which a chat completion has the tool. */
export function flatName(name: unknown, namespace: unknown): unknown {
  const isNamed = typeof name === 'string' && typeof namespace === 'string' && namespace !== '';
  return isNamed ? `${namespace}__${name}` : name;
}

/** The names of tools in namespaces, by their flat names. */
export function namespacesIn(tools: unknown): ReadonlyMap<unknown, Named> {
  const names = new Map<unknown, Named>();
  for (const tool of Array.isArray(tools) ? (tools as unknown[]) : []) {
    if (!isRecord(tool) || tool.type !== 'namespace' || typeof tool.name !== 'string') continue;
    const namespace = tool.name;
    for (const one of Array.isArray(tool.tools) ? (tool.tools as unknown[]) : [])
      if (isRecord(one) && typeof one.name === 'string')
        names.set(flatName(one.name, namespace), { name: one.name, namespace });
  }
  return names;
}
