/**
 * Streams whose chunks the upstream sends back to back, as fast as they are taken.
 */
import { chunksOf, eventData, isDone, isWholeText, textOf } from '../../../test/support/sse.js';
import { bodyOf, checkTokens, PROXIES, SLOW_PROXIES, type Prompt } from './prompt.js';
import type { Scenario } from './scenario.js';

/** Of text in one chunk, as a provider's tokens. */
export const CHUNK_BYTES = 12;

function stream(chunks: number): Scenario {
  const prompt: Prompt = { promptBytes: 200, answerBytes: chunks * CHUNK_BYTES, chunks, stream: true };
  return {
    name: `stream-${chunks}`,
    caller: 'paying',
    body: bodyOf(prompt),
    status: 200,
    // Portkey 1.15.2 answers streams with 500 on Node 20 and 24: it changes the headers of a fetched answer,
    // which are immutable. LiteLLM ends none of 64 streams of 200 chunks within a round's seconds.
    contenders: [...PROXIES, ...SLOW_PROXIES.filter((name) => name !== 'portkey' && chunks <= 20)],
    check: (answer) => {
      const read = chunksOf(answer.body);
      if (!isWholeText(textOf(read), chunks)) throw new Error(`not whole: ${answer.body.slice(0, 500)}`);
      if (!isDone(eventData(answer.body).at(-1) ?? '')) throw new Error('the stream does not end in [DONE]');
      checkTokens(prompt, read.at(-1)?.usage);
    },
  };
}

export const STREAMS: readonly Scenario[] = [stream(20), stream(200)];
