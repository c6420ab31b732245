/**
 * What doors/build-generated.ts writes to dist/protocol/generated.js. By hand, so that the sources compile
 * before it has run.
 */
import type { ChatRequest } from './chat-schema.js';

/** Only code that Code() of typebox/compile made stands beside it. */
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
