/**
 * What the headers of a response say of its body: its type, and whether it is encoded. attempt.ts and
 * error-mapping.ts of upstream/, providers/translated-call.ts and gateway/probe-diagnosis.ts call it. Pure;
 * upstream worker and main thread.
 */

/** Whether a response is a web page, which no API sends. */
export function isHtml(contentType: string | undefined): boolean {
  return contentType !== undefined && /^\s*(?:text\/html|application\/xhtml)/i.test(contentType);
}

/** Whether the body is compressed, or encoded in another way. The HTTP client asks for `identity`. */
export function isEncoded(contentEncoding: string | undefined): boolean {
  return contentEncoding !== undefined && contentEncoding.trim().toLowerCase() !== 'identity';
}

/**
 * Whether the body of a good response may be read. A stream must say so. A whole response may have any type
 * but those of a page and a stream, or none, as at a translated upstream (providers/translated-call.ts): Go's
 * servers say `text/plain` of JSON if nobody names its type, and the reader checks the body as JSON anyway.
 */
export function isReadable(contentType: string | undefined, stream: boolean): boolean {
  // Nearly all responses have exactly this type, so none of them is cut and converted.
  if (contentType === (stream ? 'text/event-stream' : 'application/json')) return true;
  const isStream = contentType?.split(';', 1)[0]!.trim().toLowerCase() === 'text/event-stream';
  return stream ? isStream : !isStream && !isHtml(contentType);
}
