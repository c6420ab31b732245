/**
 * The doors of Anthropic's Messages API, messages and count_tokens: the half for listeners. The half for
 * upstream workers is messages-dialect.ts. doors.ts has both doors in its table. Listener thread; large
 * bodies in counter threads.
 *
 * Must hold: the door checks only members that cost, route or bound a call; all other members reach the
 * upstream as they came (test/unit/doors/messages/messages-door.test.ts).
 */
import { SystemClock } from '../../core/clock.js';
import { DOOR_PATHS, statusByDoor } from '../../core/door-names.js';
import { ERROR_KINDS, type ErrorRecord } from '../../core/errors.js';
import { jsonText } from '../../core/json.js';
import { REQUEST_RULES } from '../../protocol/generated.js';
import { Level, uncheckedMembers } from '../../protocol/known-members.js';
import { sseEvent } from '../../protocol/sse.js';
import type { Door, ErrorShape, ResponseFacts } from '../door.js';
import { readersOf } from '../member-scan.js';
import { costlyMembersIn, outputTokensMin } from './messages-rules.js';

const CLOCK = new SystemClock();

const statusOfError = ({ code }: ErrorRecord): number => statusByDoor('messages', code);

/** The member `type` of the error: Anthropic's type for the status, otherwise that of ERROR_KINDS. */
function errorTypeOf(error: ErrorRecord): string {
  const status = statusOfError(error);
  if (status === 529) return 'overloaded_error';
  if (status === 404) return 'not_found_error';
  if (status === 413) return 'request_too_large';
  if (status >= 500) return 'api_error';
  return ERROR_KINDS[error.code].type;
}

function errorBodyOf(error: ErrorRecord, requestId: string): string {
  const inner = `{"type":"${errorTypeOf(error)}","message":${jsonText(error.message)},"details":{"error_code":"${error.code}"}}`;
  return `{"type":"error","error":${inner},"request_id":"${requestId}"}`;
}

/**
 * Error bodies follow platform.claude.com, page "Errors", as of November 2026. The code of core/errors.ts is
 * in `details.error_code`.
 */
const MESSAGES_ERRORS: ErrorShape = {
  status: statusOfError,
  body: errorBodyOf,
  event: (error, requestId) => sseEvent(errorBodyOf(error, requestId), 'error'),
};

/** The time that was formatted last. It is kept, because the next reset is mostly at the same second. */
let lastTime = { seconds: -1, text: '' };

/** The time in RFC 3339, in whole seconds, rounded up. `ms`: Unix milliseconds. */
function timeOf(ms: number): string {
  const seconds = Math.ceil(ms / 1_000);
  if (lastTime.seconds !== seconds)
    lastTime = { seconds, text: new Date(seconds * 1_000).toISOString().replace('.000', '') };
  return lastTime.text;
}

function limitLines(name: string, limit: number, remaining: number, resetAtMs: number): string {
  const start = `\r\nanthropic-ratelimit-${name}`;
  return `${start}-limit: ${limit}${start}-remaining: ${remaining}${start}-reset: ${timeOf(resetAtMs)}`;
}

/** Follows platform.claude.com, page "Rate limits", as of November 2026. Only tests give `nowMs`. */
export function messagesHeaderLines(
  { requestId, rateLimit, tokenLimit }: ResponseFacts,
  nowMs?: number,
): string {
  let lines = `\r\nrequest-id: ${requestId}`;
  if (rateLimit !== undefined) {
    const { limit, remaining, resetSeconds } = rateLimit;
    lines += limitLines('requests', limit, remaining, resetSeconds * 1_000);
  }
  if (tokenLimit !== undefined) {
    const { limit, remaining, resetMs } = tokenLimit;
    lines += limitLines('tokens', limit, remaining, (nowMs ?? CLOCK.wallMs()) + resetMs);
  }
  return lines;
}

const CACHE_CONTROL = new Level(uncheckedMembers('type', 'ttl'));
const SOURCE_MEMBERS = uncheckedMembers('type', 'media_type', 'data', 'url', 'file_id');
const STORED_SOURCES = { url: 'storage_url', file_id: 'file_id' } as const;
/**
 * Types of sources that are not media parts. Any other source is a media part: an image, a document or
 * another kind that a provider may have. A source of type `content` has blocks, which count by their sources.
 */
const TEXT_SOURCES = ['text', 'content'];
/** A block within the source of a document, or a document within a block of a tool result. */
const INNERMOST_BLOCK = new Level({
  ...uncheckedMembers('type', 'text', 'title', 'context'),
  source: new Level(SOURCE_MEMBERS, STORED_SOURCES, TEXT_SOURCES),
  cache_control: CACHE_CONTROL,
});
const SOURCE = new Level({ ...SOURCE_MEMBERS, content: INNERMOST_BLOCK }, STORED_SOURCES, TEXT_SOURCES);
const INNER_BLOCK = new Level({
  ...uncheckedMembers('type', 'text', 'title', 'context'),
  content: INNERMOST_BLOCK,
  source: SOURCE,
  cache_control: CACHE_CONTROL,
});
const TOOL = new Level({
  ...uncheckedMembers('type', 'name', 'description', 'input_schema', 'strict'),
  cache_control: CACHE_CONTROL,
});
/** The value of `tool` in a block that changes the tools: the definition of a tool, or the name of one. */
const CHANGED_TOOL = new Level({ ...uncheckedMembers('type', 'name'), definition: TOOL });
/** A block of a message. `file_id` is that of an upload to a container. */
const BLOCK = new Level(
  {
    ...uncheckedMembers('type', 'text', 'title', 'context', 'citations', 'id', 'name', 'input'),
    ...uncheckedMembers('tool_use_id', 'is_error', 'thinking', 'signature', 'data', 'file_id'),
    content: INNER_BLOCK,
    source: SOURCE,
    tool: CHANGED_TOOL,
    tool_changes: new Level({
      ...uncheckedMembers('type'),
      tool: CHANGED_TOOL,
      cache_control: CACHE_CONTROL,
    }),
    cache_control: CACHE_CONTROL,
  },
  { file_id: 'file_id' },
);
const MESSAGE = new Level({ ...uncheckedMembers('role'), content: BLOCK });

/**
 * The known member names of a request, as protocol/known-members.ts has those of a chat completion: at each
 * level at which a name in another case would change what a call costs or does.
 *
 * Must hold: members for which Anthropic bills more than tokens (`service_tier`, `container`) are not here
 * but in core/routing-members.ts, because the names here are not checked for routing
 * (test/unit/doors/messages/messages-door.test.ts). A new member of Anthropic passes in any case of letters
 * until it is added here.
 */
const MESSAGES_REQUEST = new Level({
  ...uncheckedMembers('model', 'max_tokens', 'stream', 'stop_sequences', 'temperature', 'top_p', 'top_k'),
  messages: MESSAGE,
  system: BLOCK,
  tools: TOOL,
  tool_choice: new Level(uncheckedMembers('type', 'name', 'disable_parallel_tool_use')),
  thinking: new Level(uncheckedMembers('type', 'budget_tokens', 'display')),
  metadata: new Level(uncheckedMembers('user_id')),
  output_config: new Level(uncheckedMembers('effort', 'format')),
  context_management: new Level({ edits: new Level(uncheckedMembers('type')) }),
  compaction: new Level(uncheckedMembers('type', 'instructions')),
  thread: new Level(uncheckedMembers('type', 'previous_message_id')),
  cache_control: CACHE_CONTROL,
});

const COMMON = {
  level: MESSAGES_REQUEST,
  readsKnownOnly: true,
  choices: () => 1,
  // Streams of this protocol always report their usage.
  asksForUsage: false,
} as const;

export const MESSAGES: Door<'messages'> = {
  name: 'messages',
  path: DOOR_PATHS.messages,
  errors: MESSAGES_ERRORS,
  ...readersOf({
    ...COMMON,
    ...REQUEST_RULES.messages,
    routing: costlyMembersIn,
    outputTokens: 'max_tokens',
    outputTokensMin,
  }),
  headerLines: (facts) => messagesHeaderLines(facts),
};

/** The door that counts the tokens of a prompt. It has no `routing`: no hosted tool runs or is billed. */
export const COUNT_TOKENS: Door<'count_tokens'> = {
  ...MESSAGES,
  name: 'count_tokens',
  path: DOOR_PATHS.count_tokens,
  isFree: true,
  ...readersOf({ ...COMMON, ...REQUEST_RULES.count_tokens, outputTokens: undefined }),
};
