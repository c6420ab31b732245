/**
 * The compiled request validators, checked when this module is loaded. chat-scan.ts and the doors (doors/)
 * call them, in listener threads and counter threads.
 *
 * Must hold: no thread starts without the compiled validators, because to walk through a schema at each call
 * is many times slower (test/unit/protocol/validators.test.ts). A new validator is added here (no test), in
 * generated.d.ts and in doors/build-generated.ts.
 */
import * as generated from './generated.js';

const MESSAGES = [{ role: 'user', content: 'probe' }];

/** For each validator a valid request and an invalid one, which differ by one rule, such as a bound. */
const PROBES = {
  checkChatRequest: [
    { model: 'probe', messages: MESSAGES, temperature: 2 },
    { model: 'probe', messages: MESSAGES, temperature: 2.5 },
  ],
  checkMessagesRequest: [
    { model: 'probe', messages: MESSAGES, max_tokens: 1 },
    { model: 'probe', messages: MESSAGES },
  ],
  checkCountRequest: [
    { model: 'probe', messages: MESSAGES, stream: false },
    { model: 'probe', messages: MESSAGES, stream: true },
  ],
  checkEmbeddingsRequest: [
    { model: 'probe', input: [[1, 2], [3]] },
    { model: 'probe', input: [[1, 2], ['3']] },
  ],
  checkCompletionsRequest: [
    { model: 'probe', prompt: 'probe', n: 2 },
    { model: 'probe', prompt: 'probe', n: 0 },
  ],
  checkModerationsRequest: [
    { model: 'probe', input: [{ type: 'text', text: 'probe' }] },
    { model: 'probe', input: [{ text: 'probe' }] },
  ],
  checkRerankRequest: [
    { model: 'probe', query: 'probe', documents: ['probe', { text: 'probe' }] },
    { model: 'probe', query: 'probe', documents: [] },
  ],
  checkResponsesRequest: [
    { model: 'probe', input: 'probe', temperature: 2 },
    { model: 'probe', input: 'probe', temperature: 2.5 },
  ],
} as const;

type ValidatorName = keyof typeof PROBES;

export type Validators = Readonly<Record<ValidatorName, (value: unknown) => boolean>> & {
  readonly COMPILED: boolean; // build-generated.ts writes true.
};

/** Throws if `validators` is not the generated module, or one gives a wrong answer. Exported for its test. */
export function assertCompiled(validators: Partial<Validators>): void {
  for (const [name, [valid, invalid]] of Object.entries(PROBES)) {
    const check = validators[name as ValidatorName];
    if (validators.COMPILED !== true || typeof check !== 'function')
      throw new Error(`the request validator ${name} is not compiled: run \`npm run build\``);
    if (!check(valid) || check(invalid))
      throw new Error(`the compiled request validator ${name} gives wrong answers: run \`npm run build\``);
  }
}

assertCompiled(generated);

/** Each tells whether a value is a valid request of its door (count: `count_tokens`): 0.1 µs if small. */
export const {
  checkChatRequest,
  checkMessagesRequest,
  checkCountRequest,
  checkEmbeddingsRequest,
  checkCompletionsRequest,
  checkModerationsRequest,
  checkRerankRequest,
  checkResponsesRequest,
} = generated;
