/**
 * The doors by which calls come in, and what the models behind them serve. Settings, threads and metrics name
 * a door by its name, shared memory by its position. Pure; any thread.
 */

/** New ones come last: frames and metrics hold positions. */
export const DOOR_NAMES = [
  'chat',
  'messages',
  'count_tokens',
  'responses',
  'embeddings',
  'completions',
  'moderations',
  'rerank',
] as const;
export type DoorName = (typeof DOOR_NAMES)[number];

/** Position in DOOR_NAMES of the door whose protocol is the canonical one. */
export const CHAT_DOOR = 0;

/** What a model can serve. The doors `messages`, `count_tokens` and `responses` lead to `chat`. */
export const SERVICES = ['chat', 'embeddings', 'completions', 'moderations', 'rerank'] as const;
export type Service = (typeof SERVICES)[number];
