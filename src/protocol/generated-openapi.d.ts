/**
 * What build-openapi.ts writes to dist/protocol/generated-openapi.js; declared by hand, so that the sources compile before it
 * has run.
 */

/** OpenAPI 3.1 of the public interface: ASCII JSON text. */
export const PUBLIC_DOCUMENT: string;
