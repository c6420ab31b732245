/**
 * The tools of a request to POST /v1/responses as a chat completion can have them: all of them functions or
 * custom tools, without namespaces. A tool of a namespace is offered as `namespace__name`, and a call of it
 * gets both names back. Pure; upstream worker.
 */
import { isRecord } from '../../core/json.js';
import { FieldError } from '../../providers/provider.js';

type Members = Readonly<Record<string, unknown>>;

export interface OfferedTool {
  readonly tool: Members;
  /** In the request. */
  readonly path: string;
}

interface Named {
  readonly name: string;
  readonly namespace: string;
}

/** An offer that the model need not take: with other tools beside it, it is left out. */
const SEARCH = 'web_search';

/** `mayChoose`: the model is free to call none of them. Throws a FieldError for an item that is no object. */
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
