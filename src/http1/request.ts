/**
 * The head of a request. What is the same for all calls of an upstream is put together once. Pure; upstream worker.
 */
import type { HttpTarget } from './http-client.js';

/** A line end in a value would begin another header, or another request. */
const VALUE = /^[\t -~]*$/;
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const PATH = /^\/[!-~]*$/;

/** Everything before the headers of one call; undefined where path or headers cannot be sent. */
export function fixedHeadOf(target: HttpTarget, userAgent: string): string | undefined {
  const headers = new Map<string, string>([
    ['host', new URL(target.origin).host],
    ['connection', 'keep-alive'],
    ['content-type', 'application/json'],
    // What comes is relayed and read as it is; nothing here decompresses.
    ['accept-encoding', 'identity'],
    ['user-agent', userAgent],
  ]);
  if (target.key !== undefined) headers.set('authorization', `Bearer ${target.key}`);
  // The target's own replace ours of the same name.
  for (const [name, value] of Object.entries(target.headers)) headers.set(name.toLowerCase(), value);
  if (!PATH.test(target.path)) return undefined;
  for (const [name, value] of headers) if (!NAME.test(name) || !VALUE.test(value)) return undefined;
  const lines = [...headers].map(([name, value]) => `${name}: ${value}\r\n`);
  return `POST ${target.path} HTTP/1.1\r\n${lines.join('')}`;
}

/** The whole head; `traceHeaders` are name, value, name, value. Undefined where a value cannot be sent. */
export function headOf(
  fixedHead: string,
  requestId: string,
  traceHeaders: readonly string[],
  lengthBytes: number,
): string | undefined {
  if (!VALUE.test(requestId)) return undefined;
  let head = `${fixedHead}x-request-id: ${requestId}\r\ncontent-length: ${lengthBytes}\r\n`;
  for (let index = 0; index + 1 < traceHeaders.length; index += 2) {
    const name = traceHeaders[index]!;
    const value = traceHeaders[index + 1]!;
    if (!NAME.test(name) || !VALUE.test(value)) return undefined;
    head += `${name}: ${value}\r\n`;
  }
  return `${head}\r\n`;
}
