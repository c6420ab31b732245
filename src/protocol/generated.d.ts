/**
 * Types of the module that doors/build-generated.ts writes to dist/protocol/generated.js. They are written by
 * hand, because the sources compile before that module exists.
 *
 * Must hold: a new validator is added here, in build-generated.ts and in validators.ts
 * (test/unit/protocol/validators.test.ts).
 */
import type { ChatRequest } from './chat-schema.js';

/** True if all validators are compiled code, so that none interprets a schema. */
export const COMPILED: boolean;

export function checkChatRequest(value: unknown): value is ChatRequest;
export function checkMessagesRequest(value: unknown): boolean;
export function checkCountRequest(value: unknown): boolean;
export function checkEmbeddingsRequest(value: unknown): boolean;
export function checkCompletionsRequest(value: unknown): boolean;
export function checkModerationsRequest(value: unknown): boolean;
export function checkRerankRequest(value: unknown): boolean;
export function checkResponsesRequest(value: unknown): boolean;

/** OpenAPI 3.1 of the public interface: ASCII JSON text. */
export const PUBLIC_DOCUMENT: string;
