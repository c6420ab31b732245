/**
 * The doors by which calls come in, and what a model must serve to be called by each. Settings, threads and
 * metrics name a door by its name, shared memory by its position in DOOR_NAMES. Nearly every folder uses the
 * names. Pure; any thread.
 *
 * Must hold: `chat` stays first (CHAT_DOOR), because the metrics count the other doors apart
 * (test/unit/telemetry/metrics-layout.test.ts). The order of the other doors may change from build to build:
 * no position is written to disk. An error has the status that clients of its door expect
 * (test/unit/core/door-names.test.ts).
 */
import { ERROR_KINDS, type ErrorCode } from './errors.js';

export const DOOR_NAMES = [
  'chat',
  'messages',
  'responses',
  'embeddings',
  'completions',
  'moderations',
  'rerank',
  'count_tokens',
] as const;
export type DoorName = (typeof DOOR_NAMES)[number];

/** Position in DOOR_NAMES of the door of chat completions, to which calls of other doors are translated. */
export const CHAT_DOOR = 0;

/** The position of each door in DOOR_NAMES. */
export const DOOR_INDEX = Object.fromEntries(DOOR_NAMES.map((name, index) => [name, index])) as Readonly<
  Record<DoorName, number>
>;

/** The path to which callers POST at each door. The doors take their paths from here. */
export const DOOR_PATHS = {
  chat: '/v1/chat/completions',
  messages: '/v1/messages',
  responses: '/v1/responses',
  embeddings: '/v1/embeddings',
  completions: '/v1/completions',
  moderations: '/v1/moderations',
  rerank: '/v1/rerank',
  count_tokens: '/v1/messages/count_tokens',
} as const satisfies Record<DoorName, string>;
export type DoorPath = (typeof DOOR_PATHS)[DoorName];

/** What a model can serve. Calls at the doors `messages`, `responses` and `count_tokens` need `chat`. */
export const SERVICES = ['chat', 'embeddings', 'completions', 'moderations', 'rerank'] as const;
export type Service = (typeof SERVICES)[number];

/** The service that a model must have to be called by each door. */
export const SERVICE_OF: Readonly<Record<DoorName, Service>> = {
  chat: 'chat',
  messages: 'chat',
  responses: 'chat',
  embeddings: 'embeddings',
  completions: 'completions',
  moderations: 'moderations',
  rerank: 'rerank',
  count_tokens: 'chat',
};

/** The member of a request that holds most of the prompt: rejections tell callers to shorten it. */
export const PROMPT_OF: Readonly<Record<DoorName, string>> = {
  chat: 'messages',
  messages: 'messages',
  responses: 'input',
  embeddings: 'input',
  completions: 'prompt',
  moderations: 'input',
  rerank: 'documents',
  count_tokens: 'messages',
};

/** The doors of Anthropic's interface, whose errors have a form of their own. */
export const ANTHROPIC_DOORS: readonly DoorName[] = ['messages', 'count_tokens'];

/** The statuses that differ from ERROR_KINDS there. messages-door.ts has them too; the test compares. */
const ANTHROPIC_STATUSES: Partial<Record<ErrorCode, number>> = { model_not_found: 404, overloaded: 529 };

/** Returns the HTTP status that callers at `door` get for an error of the gateway. */
export function statusByDoor(door: DoorName, code: ErrorCode): number {
  const anthropicStatus = ANTHROPIC_DOORS.includes(door) ? ANTHROPIC_STATUSES[code] : undefined;
  return anthropicStatus ?? ERROR_KINDS[code].status;
}
