/**
 * From a body's bytes to what the gateway has to know of it, or to the 400 that its sender gets. Pure; listener thread, and the
 * counter pool for large bodies.
 *
 * A large body goes on as bytes, which threads hand to each other without a copy: a string of 4 MB costs each of them
 * milliseconds.
 */
import { decodeBody, readChatRequest, type ChatRequestResult } from './chat-request.js';

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
  return text === undefined ? INVALID_UTF8 : readChatRequest(text, bytes.length);
}

/** The same for a body in pieces; a call has `largeBody`. Counter thread. */
export function readLargeChatBytes(pieces: readonly Uint8Array[]): ChatRequestResult {
  const bytes = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
  const read = readChatBytes(bytes);
  if (!read.ok) return read;
  const { body, modelStart, modelEnd } = read.call;
  const largeBody = new TextEncoder().encode(body);
  const shift =
    largeBody.length === body.length ? 0 : Buffer.byteLength(body.slice(0, modelStart)) - modelStart;
  const nameBytes = Buffer.byteLength(body.slice(modelStart, modelEnd));
  return {
    ok: true,
    call: {
      ...read.call,
      body: '',
      largeBody,
      modelStart: modelStart + shift,
      modelEnd: modelStart + shift + nameBytes,
    },
  };
}
