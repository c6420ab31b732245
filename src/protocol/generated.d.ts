/**
 * Types of the module that doors/build-generated.ts writes to dist/protocol/generated.js. They are written by
 * hand, because the sources compile before that module exists.
 */
import type { DoorName } from '../core/door-names.js';
import type { RequestSchema } from './request-rules.js';

interface RequestRules {
  /** Whether a value is a valid request: code that was compiled from `schema`; 0.1 µs if small. */
  readonly check: (value: unknown) => boolean;
  readonly schema: RequestSchema;
}

export const REQUEST_RULES: Readonly<Record<DoorName, RequestRules>>;

/** OpenAPI 3.1 of the public interface: ASCII JSON text. */
export const PUBLIC_DOCUMENT: string;
