/**
 * From a body's bytes to what the gateway has to know of it, or to the 400 that its sender gets. Pure; listener thread, and the
 * counter pool for large bodies.
 *
 * A body of some KB goes on as bytes, which threads hand to each other without a copy: a string of 4 MB costs each of them
 * milliseconds.
 */
import type { ChatCall } from './chat-call.js';
import { decodeBody, readChatRequest, type ChatRequestResult } from './chat-request.js';

/**
 * Below it a string costs less than memory outside of the heap; such a one is a record of a ring (frame-ring.ts). With 24 KB a call with
 * a body of 16 KB took 1.09 times the CPU: the string is copied four times on its way, the memory is handed over.
 */
const BODY_AS_BYTES_MIN = 4 * 1024;

const INVALID_UTF8: ChatRequestResult = {
  ok: false,
  error: {
    code: 'invalid_parameters',
    message: 'the request body must be UTF-8 text, and some of its bytes are not. Send JSON in UTF-8.',
  },
};

/** Keeps nothing of `bytes`. Costs some µs for a small body, some ms a megabyte. */
export function readChatBytes(bytes: Uint8Array): ChatRequestResult {
  const text = decodeBody(bytes);
  if (text === undefined) return INVALID_UTF8;
  const read = readChatRequest(text, bytes.length);
  if (!read.ok || bytes.length < BODY_AS_BYTES_MIN) return read;
  return { ok: true, call: inBytes(read.call) };
}

/** The same for a body in pieces; a call has `largeBody`. Counter thread. */
export function readLargeChatBytes(pieces: readonly Uint8Array[]): ChatRequestResult {
  const bytes = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
  const read = readChatBytes(bytes);
  if (!read.ok || read.call.largeBody !== undefined) return read;
  return { ok: true, call: inBytes(read.call) };
}

/** The call with its body as bytes. */
function inBytes(call: ChatCall): ChatCall {
  const { body, bodyIsAscii, modelStart, modelEnd } = call;
  if (bodyIsAscii) {
    // A buffer of its own: it may be transferred.
    const largeBody = Buffer.allocUnsafeSlow(body.length);
    largeBody.write(body, 'latin1');
    return { ...call, body: '', largeBody };
  }
  const largeBody = new TextEncoder().encode(body);
  const shift =
    largeBody.length === body.length ? 0 : Buffer.byteLength(body.slice(0, modelStart)) - modelStart;
  const nameBytes = Buffer.byteLength(body.slice(modelStart, modelEnd));
  return {
    ...call,
    body: '',
    largeBody,
    modelStart: modelStart + shift,
    modelEnd: modelStart + shift + nameBytes,
  };
}
