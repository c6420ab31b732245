/**
 * Error bodies and response headers in Anthropic's form. messages-door.ts uses them. Listener thread.
 *
 * Follows platform.claude.com, pages "Errors" and "Rate limits", as of November 2026. The code of
 * core/errors.ts is in `details.error_code`.
 */
import { SystemClock } from '../../core/clock.js';
import { ERROR_KINDS, statusOf, type ErrorRecord } from '../../core/errors.js';
import { jsonText } from '../../core/json.js';
import type { ErrorShape, ResponseFacts } from '../door.js';

const OVERLOADED = 529;
const CLOCK = new SystemClock();

function status(error: ErrorRecord): number {
  if (error.code === 'overloaded') return OVERLOADED;
  // Anthropic answers 404 for an unknown model, OpenAI 400.
  return error.code === 'model_not_found' ? 404 : statusOf(error);
}

function typeOf(error: ErrorRecord): string {
  const code = status(error);
  if (code === OVERLOADED) return 'overloaded_error';
  if (code === 404) return 'not_found_error';
  if (code === 413) return 'request_too_large';
  if (code >= 500) return 'api_error';
  return ERROR_KINDS[error.code].type;
}

function body(error: ErrorRecord, requestId: string): string {
  const inner = `{"type":"${typeOf(error)}","message":${jsonText(error.message)},"details":{"error_code":"${error.code}"}}`;
  return `{"type":"error","error":${inner},"request_id":"${requestId}"}`;
}

export const MESSAGES_ERRORS: ErrorShape = {
  status,
  body,
  event: (error, requestId) => `event: error\ndata: ${body(error, requestId)}\n\n`,
};

/** Cache of the last text: most resets that are written in a second are at the same second. */
let written = { seconds: -1, text: '' };

/** The time in RFC 3339, in whole seconds, rounded up. */
function timeOf(ms: number): string {
  const seconds = Math.ceil(ms / 1_000);
  if (written.seconds !== seconds)
    written = { seconds, text: new Date(seconds * 1_000).toISOString().replace('.000', '') };
  return written.text;
}

function limitLines(name: string, limit: number, remaining: number, resetAtMs: number): string {
  const head = `\r\nanthropic-ratelimit-${name}`;
  return `${head}-limit: ${limit}${head}-remaining: ${remaining}${head}-reset: ${timeOf(resetAtMs)}`;
}

/** As Door.headerLines. */
export function messagesHeaderLines(
  { requestId, rateLimit, tokenLimit }: ResponseFacts,
  nowMs?: number,
): string {
  let lines = `\r\nrequest-id: ${requestId}`;
  if (rateLimit !== undefined) {
    const { limit, remaining, resetSeconds } = rateLimit;
    lines += limitLines('requests', limit, remaining, resetSeconds * 1_000);
  }
  if (tokenLimit !== undefined) {
    const { limit, remaining, resetMs } = tokenLimit;
    lines += limitLines('tokens', limit, remaining, (nowMs ?? CLOCK.wallMs()) + resetMs);
  }
  return lines;
}
