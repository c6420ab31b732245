/**
 * The doors by which calls come in, and what the models behind them serve. Settings, threads and metrics
 * name a door by its name, shared memory by its position. Pure; any thread. Test:
 * test/unit/core/door-names.test.ts.
 */

import { ERROR_KINDS, type ErrorCode } from './errors.js';

/** New ones come last: frames and metrics hold positions. */
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

/** Position in DOOR_NAMES of the door whose protocol is the canonical one. */
export const CHAT_DOOR = 0;

/** Positions in DOOR_NAMES, as frames and metrics have them. */
export const DOOR_INDEX = Object.fromEntries(DOOR_NAMES.map((name, index) => [name, index])) as Readonly<
  Record<DoorName, number>
>;

/** Of the routes that take calls, by POST. */
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

/** What a model can serve. The doors `messages`, `responses` and `count_tokens` lead to `chat`. */
export const SERVICES = ['chat', 'embeddings', 'completions', 'moderations', 'rerank'] as const;
export type Service = (typeof SERVICES)[number];

/** What a model must serve for calls by that door. */
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

/** Those of Anthropic's interface, which has a form of errors of its own. */
export const ANTHROPIC_DOORS: readonly DoorName[] = ['messages', 'count_tokens'];

/** Anthropic's own statuses: the name of a model is a resource there. */
const MESSAGES_STATUSES: Partial<Record<ErrorCode, number>> = { model_not_found: 404, overloaded: 529 };

/** Returns the HTTP status of an error that the gateway itself makes, as the door tells it. */
export function statusByDoor(door: DoorName, code: ErrorCode): number {
  const own = ANTHROPIC_DOORS.includes(door) ? MESSAGES_STATUSES[code] : undefined;
  return own ?? ERROR_KINDS[code].status;
}
