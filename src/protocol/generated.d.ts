/**
 * What build-generated.ts writes to dist/protocol/generated.js. By hand, so that the sources compile before
 * it has run.
 */
import type { ChatRequest } from './chat-schema.js';

/** Only a module that Code() of typebox/compile made has it. */
export const COMPILED: boolean;

export function checkChatRequest(value: unknown): value is ChatRequest;

/** OpenAPI 3.1 of the public interface: ASCII JSON text. */
export const PUBLIC_DOCUMENT: string;
