/**
 * The members of a Messages request that cost more than the tokens of its body, or read what Anthropic has
 * stored; and the least bound of its output. messages-door.ts gives the functions to member-scan.ts. Pure;
 * listener thread, or counter thread for large bodies; to-chat.ts calls `summarisingEditIn` on upstream
 * workers.
 *
 * Must hold: a tool or an edit of a type that is not known here counts as one that costs more, or a later
 * type of Anthropic's would be billed to the operator alone. The functions read only members that
 * MESSAGES_REQUEST of messages-door.ts names: known-values.ts leaves others out
 * (test/unit/doors/messages/messages-door.test.ts).
 */
import { isGiven, isRecord, type Members } from '../../core/json.js';
import type { RoutingMember } from '../../core/routing-members.js';

/** The least `max_tokens` that Anthropic accepts: more than the thinking budget, which it includes. */
export function outputTokensMin({ thinking }: Members): number {
  const budget = isRecord(thinking) && thinking.type === 'enabled' ? thinking.budget_tokens : undefined;
  return typeof budget === 'number' && Number.isSafeInteger(budget) && budget > 0 ? budget + 1 : 1;
}

/** Types of tools whose calls the caller runs, besides those without a type. Dates follow. */
const CALLERS_TOOL = /^(?:custom$|(?:bash|text_editor|computer|memory|(?:browser|computer)_toolset)_\d)/;

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

/**
 * Members for which Anthropic bills more than the tokens of the body and the response, or goes on with a
 * conversation that it has stored (`thread`). `body` is valid. `compaction` asks for a summary alone: the
 * tokens of summaries are not in the report that calls are billed by (BetaUsage of @anthropic-ai/sdk 1.12).
 */
export function costlyMembersIn({
  tools,
  messages,
  context_management: management,
  compaction,
  thread,
}: Members): RoutingMember[] {
  const members: RoutingMember[] = [];
  // Tools that Anthropic runs may be billed apart from tokens.
  if (((tools ?? []) as readonly Members[]).some(isHosted) || addsHostedTool(messages))
    members.push('hosted_tools');
  if (summarisingEditIn(management) >= 0 || isAsked(compaction)) members.push('context_management');
  if (isAsked(thread)) members.push('thread');
  return members;
}

function isAsked(value: unknown): boolean {
  return isGiven(value) && value !== false;
}

function isHosted({ type = 'custom' }: Members): boolean {
  return type !== null && !(typeof type === 'string' && CALLERS_TOOL.test(type));
}

/**
 * Whether a block adds a tool that Anthropic runs: a `tool_addition`, or one with such blocks in
 * `tool_changes` (of the type `compaction`). Types do not matter, so a later kind counts too.
 */
function addsHostedTool(messages: unknown): boolean {
  for (const { content } of (messages ?? []) as readonly Members[]) {
    if (!Array.isArray(content)) continue;
    for (const block of content as readonly Members[]) {
      if (block.tool !== undefined && isHostedAddition(block)) return true;
      const { tool_changes: changes } = block;
      if (Array.isArray(changes) && (changes as unknown[]).some(isHostedAddition)) return true;
    }
  }
  return false;
}

function isHostedAddition(change: unknown): boolean {
  const tool = isRecord(change) ? change.tool : undefined;
  const definition = isRecord(tool) ? tool.definition : undefined;
  return isRecord(definition) && isHosted(definition);
}
