/**
 * Flattens the tools of a request to POST /v1/responses for a chat completion, which has no namespaces: a
 * tool of a namespace is offered as `namespace__name`, and a call of it gets both names back. to-chat.ts
 * calls it for the request, response-stream.ts for the calls. Pure; upstream worker.
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

/** A hosted tool that coding agents offer by default: it is left out if there are other tools beside it. */
const SEARCH = 'web_search';

/** `mayChoose`: the model may call none of the tools. Throws a FieldError for an item that is no object. */
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
  const rest = offered.filter(({ tool: { type } }) => !(typeof type === 'string' && type.startsWith(SEARCH)));
  return mayChoose && rest.length > 0 ? rest : offered;
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
