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

/** What a model can serve. */
export const SERVICES = ['chat', 'embeddings', 'completions', 'moderations', 'rerank'] as const;
export type Service = (typeof SERVICES)[number];

interface Door {
  /** The path to which callers POST. The doors take their paths from here. */
  readonly path: string;
  /** The service that a model must have to be called by the door. */
  readonly service: Service;
  /** The member of a request that holds most of the prompt: rejections tell callers to shorten it. */
  readonly prompt: string;
}

const DOORS = {
  chat: { path: '/v1/chat/completions', service: 'chat', prompt: 'messages' },
  messages: { path: '/v1/messages', service: 'chat', prompt: 'messages' },
  responses: { path: '/v1/responses', service: 'chat', prompt: 'input' },
  embeddings: { path: '/v1/embeddings', service: 'embeddings', prompt: 'input' },
  completions: { path: '/v1/completions', service: 'completions', prompt: 'prompt' },
  moderations: { path: '/v1/moderations', service: 'moderations', prompt: 'input' },
  rerank: { path: '/v1/rerank', service: 'rerank', prompt: 'documents' },
  count_tokens: { path: '/v1/messages/count_tokens', service: 'chat', prompt: 'messages' },
} as const satisfies Record<string, Door>;
export type DoorName = keyof typeof DOORS;
export const DOOR_NAMES = Object.keys(DOORS) as readonly DoorName[];

/** Position in DOOR_NAMES of the door of chat completions, to which calls of other doors are translated. */
export const CHAT_DOOR = 0;

/** The position of each door in DOOR_NAMES. */
export const DOOR_INDEX = Object.fromEntries(DOOR_NAMES.map((name, index) => [name, index])) as Readonly<
  Record<DoorName, number>
>;

const ofDoors = <Member extends keyof Door>(member: Member) =>
  Object.fromEntries(DOOR_NAMES.map((name) => [name, DOORS[name][member]])) as {
    readonly [Name in DoorName]: (typeof DOORS)[Name][Member];
  };
export const DOOR_PATHS = ofDoors('path');
export type DoorPath = (typeof DOOR_PATHS)[DoorName];
export const SERVICE_OF: Readonly<Record<DoorName, Service>> = ofDoors('service');
export const PROMPT_OF: Readonly<Record<DoorName, string>> = ofDoors('prompt');

/** The doors of Anthropic's interface, whose errors have a form of their own. */
export const ANTHROPIC_DOORS: readonly DoorName[] = ['messages', 'count_tokens'];

/** The statuses that differ from ERROR_KINDS there. messages-door.ts has them too; the test compares. */
const ANTHROPIC_STATUSES: Partial<Record<ErrorCode, number>> = { model_not_found: 404, overloaded: 529 };

/** Returns the HTTP status that callers at `door` get for an error of the gateway. */
export function statusByDoor(door: DoorName, code: ErrorCode): number {
  const anthropicStatus = ANTHROPIC_DOORS.includes(door) ? ANTHROPIC_STATUSES[code] : undefined;
  return anthropicStatus ?? ERROR_KINDS[code].status;
}
