/**
 * Requests that were hits of the response cache, by the bytes of their bodies: the call that was read of such
 * a body, and the key of its response. Most hits come again byte for byte; a request that is known is neither
 * parsed nor hashed. Made by ResponseCache, used by Intake and replay.ts; listener thread.
 *
 * What is known follows from the bytes, the door and `facts` alone, and decides nothing: plan, model and
 * limits are looked at for each request as ever, and its response is found, or is gone, as ever. So nothing
 * has to be forgotten but for its memory, which is bounded; the oldest go first.
 *
 * Must hold: a known request gets what reading it would give (test/unit/request/known-requests.test.ts).
 */
import type { AccountIndex } from '../core/units.js';
import type { Door } from '../doors/door.js';
import type { ChatCall, ChatRequestResult } from '../protocol/chat-call.js';
import { nameOfResponse, type ResponseKey } from '../registry/stored-response.js';

/**
 * Calls with longer bodies have bytes in place of a string, which a worker takes away: from BODY_AS_BYTES_MIN
 * of protocol/request-bytes.ts on.
 */
const KNOWN_BYTES_MAX = 4 * 1024 - 1;
/** What a known request takes beside its texts, about. */
const KNOWN_ROW_BYTES = 1_024;

export interface KnownRequest {
  readonly door: Door;
  readonly read: ChatRequestResult;
  /** See requestDigestOf. */
  readonly facts: string;
  readonly key: ResponseKey;
  /** `nameOfResponse(key)` */
  readonly name: string;
  readonly bytes: number;
}

/** What an exchange has of its body while the cache looks for its response. */
export interface ReadRequest {
  readonly door: Door;
  /** The bytes of the body as Latin-1; empty if they are too many, or there is no cache. */
  bodyText: string;
  known: KnownRequest | undefined;
}

export class KnownRequests {
  /** The first that came first. */
  readonly #byText = new Map<string, KnownRequest>();
  #bytes = 0;
  #bytesMax = 0;

  /** At the start and at each reload; 0 if there is no cache. */
  setBytesMax(bytesMax: number): void {
    this.#bytesMax = bytesMax;
    this.#evict();
  }

  /** What all take, about. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Reads the body, or takes what was read of the same bytes before. */
  read(request: ReadRequest, bytes: Uint8Array): ChatRequestResult {
    if (this.#bytesMax > 0 && bytes.length <= KNOWN_BYTES_MAX) {
      request.bodyText = latin1Of(bytes);
      const known = this.#byText.get(request.bodyText);
      if (known?.door === request.door) {
        request.known = known;
        return known.read;
      }
    }
    return request.door.read(bytes);
  }

  /** Remembers a hit. */
  remember({ door, bodyText, known }: ReadRequest, call: ChatCall, facts: string, key: ResponseKey): void {
    if (bodyText === '' || known?.key === key) return;
    this.#forget(bodyText);
    const bytes = KNOWN_ROW_BYTES + bodyText.length + 2 * call.body.length;
    const read = { ok: true, call } as const;
    this.#byText.set(bodyText, { door, read, facts, key, name: nameOfResponse(key), bytes });
    this.#bytes += bytes;
    this.#evict();
  }

  #evict(): void {
    for (const text of this.#byText.keys()) {
      if (this.#bytes <= this.#bytesMax) return;
      this.#forget(text);
    }
  }

  #forget(text: string): void {
    this.#bytes -= this.#byText.get(text)?.bytes ?? 0;
    this.#byText.delete(text);
  }
}

/** The known request if its response is that of `facts` and the account. */
export function knownFor(
  { known }: ReadRequest,
  facts: string,
  account: AccountIndex,
): KnownRequest | undefined {
  return known?.facts === facts && known.key.account === account ? known : undefined;
}

function latin1Of({ buffer, byteOffset, length }: Uint8Array): string {
  return Buffer.from(buffer as ArrayBuffer, byteOffset, length).toString('latin1');
}
