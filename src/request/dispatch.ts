/**
 * The dispatch phase: sends an admitted call to an upstream worker. intake.ts calls it; listener thread.
 *
 * Must hold: if no worker takes the call, its admission is undone here, hold and slot, before it is rejected
 * (test/e2e/thread-failure.test.ts).
 */
import type { CallReceiver } from '../channel/listener-channel.js';
import { OUTPUT_TOKENS_UNLIMITED } from '../channel/messages.js';
import { DOOR_INDEX } from '../core/door-names.js';
import { NOWHERE } from '../protocol/chat-call.js';
import type { ChatExchange } from './chat-exchange.js';
import type { Admission, ListenerContext } from './context.js';
import { NO_WORKER } from './rejections.js';
import { release } from './settle.js';

/**
 * `receiver` gets the worker's frames. Returns false if there is no worker: then nothing is held any more.
 */
export function dispatch(
  exchange: ChatExchange,
  { slot, modelIndex, call }: Admission,
  receiver: CallReceiver,
  listener: ListenerContext,
): boolean {
  const { channel, metrics } = listener;
  // A bound that is null in the body is none, so workers do not replace it for a fallback.
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
      outputTokensMax: Math.min(call.outputTokensMax ?? Infinity, OUTPUT_TOKENS_UNLIMITED),
      choices: Math.min(call.choices, OUTPUT_TOKENS_UNLIMITED),
      mediaParts: call.mediaParts,
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
