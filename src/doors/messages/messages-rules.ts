/**
 * The members of a Messages request that cost more than tokens, and the least bound of its output.
 * messages-door.ts gives the functions to member-scan.ts. Pure; listener thread, or counter thread for large
 * bodies; to-chat.ts calls `summarisingEditIn` on upstream workers.
 *
 * Must hold: a tool or an edit of a type that is not known
 * here counts as one that costs more, or a later type of Anthropic's would be billed to the operator alone.
 */
import { isRecord, type Members } from '../../core/json.js';
import type { RoutingMember } from '../../core/routing-members.js';

/** The least `max_tokens` that Anthropic accepts: more than the thinking budget, which it includes. */
export function outputTokensMin({ thinking }: Members): number {
  const budget = isRecord(thinking) && thinking.type === 'enabled' ? thinking.budget_tokens : undefined;
  return typeof budget === 'number' && Number.isSafeInteger(budget) && budget > 0 ? budget + 1 : 1;
}

/** Types of tools whose calls the caller runs, besides those without a type and `custom`. */
const CALLERS_TOOL = /^(?:custom$|(?:bash|text_editor|computer|memory|browser_toolset)_\d)/;

/**
 * The index, in `context_management.edits`, of the first edit that does more than clear old parts; -1 if
 * there is none. Such an edit may have a model summarise the conversation, which costs further tokens.
 */
export function summarisingEditIn(management: unknown): number {
  const edits = isRecord(management) ? management.edits : undefined;
  if (!Array.isArray(edits)) return -1;
  return (edits as unknown[]).findIndex(
    (edit) => !(isRecord(edit) && typeof edit.type === 'string' && edit.type.startsWith('clear_')),
  );
}

/** Members for which Anthropic bills more than the tokens of the response. `body` is valid. */
export function costlyMembersIn(body: Members): RoutingMember[] {
  const edits = summarisingEditIn(body.context_management) >= 0 ? (['context_management'] as const) : [];
  return [...hostedToolsIn(body), ...edits];
}

/** `hosted_tools` if Anthropic runs some of the tools, which may be billed apart from tokens. */
function hostedToolsIn(body: Members): readonly ['hosted_tools'] | readonly [] {
  const tools = (body.tools ?? []) as readonly Members[];
  const isHosted = ({ type = 'custom' }: Members): boolean =>
    type !== null && !(typeof type === 'string' && CALLERS_TOOL.test(type));
  return tools.some(isHosted) ? ['hosted_tools'] : [];
}
