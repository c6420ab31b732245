/**
 * Translates a large body into the protocol of its upstream. A worker would serve no other call meanwhile, so
 * large-call.ts sends the body to a counter thread, where counter-task.ts calls `translateLarge`. Pure.
 *
 * Must hold: no credential comes to a counter thread (ProviderSettings has only a number for it): the worker
 * adds headers and signatures (test/e2e/secrets.test.ts). The request is the same as for a small body
 * (test/unit/upstream/large-call.test.ts).
 *
 *     body of the door ─ toChat ─→ chat completion ─ write ─→ body of the provider
 *                     (unless chat)               (unless the upstream speaks OpenAI's protocol)
 */
import { hash } from 'node:crypto';
import { asBuffer } from '../core/bytes.js';
import { exactJson, exactJsonText } from '../core/exact-json.js';
import { isRecord, type Members, parsedJson } from '../core/json.js';
import { dialectAt } from '../doors/dialects.js';
import { PROVIDERS } from '../providers/providers.js';
import { FieldError, type ProviderSettings } from '../providers/provider.js';
import { exactBody, inCallersWords, readsExtras } from './door-call.js';
import { bodyFor, inNamesOf, type MemberNames } from './upstream-body.js';

/** What a translation needs: plain data, which a worker sends to a counter thread. */
export interface LargeBody {
  /** Position in DOOR_NAMES. */
  readonly door: number;
  /** A copy of the call's body, because the memory is transferred. */
  readonly body: Uint8Array;
  /** Where the model's JSON string is in `body`, in bytes, with its quotes. */
  readonly modelStart: number;
  readonly modelEnd: number;
  /** The upstream's name of the model; undefined if it is the name in the body. */
  readonly model: string | undefined;
  readonly stream: boolean;
  /** Undefined without a provider. `openai` and `azure` speak OpenAI's protocol, so PROVIDERS lacks them. */
  readonly provider: ProviderSettings | undefined;
  readonly memberNames: MemberNames | undefined;
  /** Whether the upstream wants the thoughts of earlier turns back. */
  readonly thoughtsBack: boolean;
  readonly requestId: string;
  /** Wall-clock time, from which a provider's body gets its dates. */
  readonly nowMs: number;
}

/** The translated request, or why there is none. */
export type LargeTranslated =
  | {
      readonly isWritten: true;
      /** The memory of the body is transferred. */
      readonly body: Uint8Array;
      /** The provider's path; undefined if the body is a chat completion, which goes to the target's path. */
      readonly path: string | undefined;
      /** SHA-256 in hexadecimal, if the provider signs it. */
      readonly bodyHash: string | undefined;
      /** The members of the caller's body but the conversation, from which the response is made. */
      readonly callersMembers: Members;
      /** The members of the chat completion but the conversation. */
      readonly chat: Members;
    }
  /** `isField`: the upstream's protocol cannot express the member whose path begins `message`. */
  | { readonly isWritten: false; readonly isField: boolean; readonly message: string };

/** Members that hold a conversation. The worker does not get them, because no response repeats them. */
const CONVERSATION: readonly string[] = ['messages', 'input', 'system'];

/** Never throws: a failure of any kind becomes a result, so that the counter thread goes on. */
export function translateLarge(large: LargeBody): LargeTranslated {
  const { door, body, model, stream, memberNames, thoughtsBack, requestId, nowMs } = large;
  const { provider: settings } = large;
  const translator = dialectAt(door)?.translator;
  const text = asBuffer(body).toString();
  const provider = settings && PROVIDERS[settings.name];
  // exactJson marks long integers, so that exactJsonText can write all of their digits. A chat completion
  // that stays one is parsed with marks everywhere. `toChat` and `provider.write` expect marks only where
  // exactBody and `argumentsOf` (providers/fields.ts) set them, so any other body is parsed without.
  const parse = translator === undefined && provider === undefined ? exactJson : parsedJson;
  const callersMembers = parse(text);
  if (!isRecord(callersMembers))
    return { isWritten: false, isField: false, message: 'a body is a JSON object' };
  let translated = callersMembers;
  try {
    if (translator !== undefined) {
      const exact = exactBody(callersMembers, text, translator);
      translated = translator.toChat(exact, { extras: readsExtras(settings), thoughtsBack });
    }
    const chat = { ...translated, model: model ?? callersMembers.model };
    const common = {
      isWritten: true,
      callersMembers: withoutConversation(callersMembers),
      chat: withoutConversation(chat),
    } as const;
    if (settings === undefined || provider === undefined) {
      const renamed = inNamesOf(memberNames, chat);
      const isSame = translator === undefined && renamed === chat;
      const bytes = isSame ? sameBytes(large) : bytesOf(exactJsonText(renamed));
      return { ...common, body: bytes, path: undefined, bodyHash: undefined };
    }
    const call = { settings, body: chat, stream, requestId, nowMs, model: String(chat.model) };
    const request = provider.write(call);
    const bytes = bytesOf(request.body);
    const bodyHash = provider.signsBody && hash('sha256', bytes);
    return { ...common, body: bytes, path: request.path, bodyHash };
  } catch (error) {
    if (!(error instanceof FieldError)) {
      const stack = error instanceof Error ? `${error.stack}` : String(error);
      return { isWritten: false, isField: false, message: stack };
    }
    const { field, message } = error;
    const callersMessage =
      translator === undefined ? message : inCallersWords(translator, translated, field, message);
    return { isWritten: false, isField: true, message: callersMessage };
  }
}

/** The caller's bytes but for the model, in new memory, because the memory is transferred. */
function sameBytes({ model, body: largeBody, modelStart, modelEnd }: LargeBody): Uint8Array {
  return new Uint8Array(bodyFor({ model }, { body: '', largeBody, modelStart, modelEnd }) as Uint8Array);
}

/** The text's UTF-8 in new memory, not of Node's pool, because the memory is transferred. */
function bytesOf(text: string): Uint8Array {
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text));
  bytes.write(text);
  return bytes;
}

function withoutConversation(members: Members): Members {
  return Object.fromEntries(Object.entries(members).filter(([name]) => !CONVERSATION.includes(name)));
}
