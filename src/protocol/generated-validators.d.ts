/**
 * What build-validators.ts writes to dist/protocol/generated-validators.js; declared by hand, so that the sources compile
 * before it has run.
 */
import type { ChatRequest } from './chat-schema.js';

/** True in a module that Code() of typebox/compile made; nothing else has it. */
export const COMPILED: boolean;

export function checkChatRequest(value: unknown): value is ChatRequest;
