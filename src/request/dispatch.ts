/**
 * The dispatch phase: sends an admitted call to an upstream worker. intake.ts calls it, once for a call;
 * listener thread.
 *
 * Must hold: if no worker takes the call, its hold and its slot are given back here, before intake.ts rejects
 * the call (test/e2e/thread-failure.test.ts; there is no unit test). If a worker takes the call, the receiver
 * settles the call and gives the slot back.
 */
import type { CallReceiver } from '../channel/listener-channel.js';
import { OUTPUT_TOKENS_UNLIMITED } from '../channel/messages.js';
import { DOOR_INDEX } from '../core/door-names.js';
import { NOWHERE } from '../protocol/chat-call.js';
import type { ChatExchange } from './chat-exchange.js';
import type { Admission, ListenerContext } from './context.js';
import { NO_WORKER } from './rejections.js';
import { release } from './settle.js';

/** Returns false if no worker has taken the call. Otherwise `receiver` gets the worker's frames. */
export function dispatch(
  exchange: ChatExchange,
  { slot, modelIndex, call }: Admission,
  receiver: CallReceiver,
  listener: ListenerContext,
): boolean {
  const { channel, metrics } = listener;
  // For a fallback, workers replace the bound of output in the body, at `maxTokens` and
  // `maxCompletionTokens`. A body with `null` there has no bound, so workers replace nothing.
  const isBounded = call.outputTokensMax !== undefined;
  const isDispatched = channel.dispatch(
    slot,
    {
      requestId: exchange.requestId,
      door: DOOR_INDEX[exchange.door.name],
      betas: exchange.betas,
      modelIndex,
      stream: call.stream,
      includeUsage: call.includeUsage,
      modelStart: call.modelStart,
      modelEnd: call.modelEnd,
      body: call.body,
      bodyIsAscii: call.bodyIsAscii,
      largeBody: call.largeBody,
      trace: exchange.trace?.carried,
      account: exchange.account,
      // Frames have 32 bits for each of the next two numbers, and a client may write any.
      outputTokensMax: Math.min(call.outputTokensMax ?? Infinity, OUTPUT_TOKENS_UNLIMITED),
      choices: Math.min(call.choices, OUTPUT_TOKENS_UNLIMITED),
      mediaParts: call.mediaParts,
      repeatedTokens: call.repeatedTokens,
      fallbacks:
        exchange.models.length === 1
          ? undefined
          : {
              models: exchange.models.slice(1).map((fallback) => fallback.modelIndex),
              maxTokens: isBounded ? call.maxTokens : NOWHERE,
              maxCompletionTokens: isBounded ? call.maxCompletionTokens : NOWHERE,
            },
    },
    receiver,
  );
  if (isDispatched) {
    metrics.callBegun();
    return true;
  }
  release(exchange, NO_WORKER, listener);
  channel.release(slot);
  return false;
}
