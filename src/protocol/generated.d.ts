/**
 * Types of the module that doors/build-generated.ts writes to dist/protocol/generated.js. Written by hand, so
 * that the sources compile before that has run: a new validator is added here, there and in validators.ts.
 */
import type { ChatRequest } from './chat-schema.js';

/** True if every validator of the module is code made by Code() of typebox/compile, and none interprets. */
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
