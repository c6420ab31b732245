/**
 * Whole answers: small as in a conversation, large as with a document in the prompt.
 */
import { isWholeText } from '../../../test/support/sse.js';
import { bodyOf, checkTokens, PROXIES, SLOW_PROXIES, type Prompt, type Tokens } from './prompt.js';
import type { Scenario } from './scenario.js';

interface WholeAnswer {
  readonly choices: readonly { readonly message: { readonly content: string } }[];
  readonly usage?: Tokens;
}

function whole(name: string, prompt: Prompt): Scenario {
  return {
    name,
    caller: 'paying',
    body: bodyOf(prompt),
    status: 200,
    contenders: [...PROXIES, 'relay', ...SLOW_PROXIES],
    check: (answer) => {
      const { choices, usage } = answer.json() as WholeAnswer;
      const content = choices[0]?.message.content ?? '';
      if (content.length !== prompt.answerBytes || !isWholeText(content, prompt.chunks))
        throw new Error(`not the whole text: ${content.slice(0, 200)}`);
      checkTokens(prompt, usage);
    },
  };
}

export const WHOLE: readonly Scenario[] = [
  // A body of some 550 bytes.
  whole('whole-small', { promptBytes: 200, answerBytes: 240, chunks: 20, stream: false }),
  // … of some 4 KiB.
  whole('whole-large', { promptBytes: 16 * 1024, answerBytes: 3_800, chunks: 20, stream: false }),
];
