/**
 * LiteLLM's translation beside ours, on the same requests and answers: what goes to a provider, and what its
 * answer becomes, whole and streamed. Differences in form alone are smoothed; each class of the others is
 * listed in differences.ts with the decision. A difference that is not listed fails, and so does an entry
 * that meets none.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { FieldError, ProviderError, type Provider } from '#src/providers/provider.js';
import { PROVIDERS } from '#src/providers/providers.js';
import { joinedChat } from '../support/chat-joiner.js';
import { answerCases } from '../support/provider-answers.js';
import type { AnswerCase, Dialect } from '../support/provider-dialects.js';
import { ERROR_FORMS } from '../support/provider-errors.js';
import { callOf, FORMS, type Form } from '../support/provider-forms.js';
import { requestCases } from '../support/provider-requests.js';
import { chunksOf } from '../support/sse.js';
import { differencesOf, type Difference } from './difference.js';
import { LISTED } from './differences.js';
import { plainChat, plainRequest } from './plain-form.js';

const CASES_MIN = 150;
const python = resolve('build/tools/judges-python/bin/python');
const NO_JUDGE = existsSync(resolve('build/tools/judges-python/installed.txt'))
  ? {}
  : { skip: 'no Python with LiteLLM: test/setup-tools.sh judges' };

interface Question {
  readonly id: string;
  readonly request: Readonly<Record<string, unknown>>;
  readonly answer: AnswerCase | ErrorCase;
  /** What is compared. */
  readonly about: 'request' | 'answer';
}

/** The response has this status, and the provider's own body for it; or, in a stream, a frame for it. */
interface ErrorCase {
  readonly errorStatus: number;
  readonly message: string;
  readonly isFrame: boolean;
}

/** What errors say, by their status; the provider's words for them are in ERROR_FORMS. */
const MESSAGES: Readonly<Record<number, readonly string[]>> = {
  400: ['max_tokens: must be positive', 'prompt is too long: 210000 tokens > 200000 maximum'],
};

interface Verdict {
  readonly id: string;
  readonly sent: unknown;
  readonly completion: object | null;
  readonly chunks: object[] | null;
  readonly error: {
    readonly status: number | null;
    /** OpenAI's word, if the class of the error has one. */
    readonly kind: string | null;
    readonly message: string;
  } | null;
}

const HELLO = { messages: [{ role: 'user', content: 'Hello' }] };

function questionsOf({ dialect }: Form): Question[] {
  const answers = answerCases(dialect);
  return [
    ...requestCases().map(({ name, request }): Question => ({
      id: name,
      request,
      answer: answers[0]!,
      about: 'request',
    })),
    ...answers.flatMap((answer) =>
      [false, true].map((stream): Question => ({
        id: `${answer.name}, ${stream ? 'stream' : 'whole'}`,
        request: stream ? { ...HELLO, stream, stream_options: { include_usage: true } } : HELLO,
        answer,
        about: 'answer',
      })),
    ),
    ...errorCases(dialect).map((answer): Question => ({
      id: `status ${answer.errorStatus}${answer.isFrame ? ' in a stream' : ''}, ${answer.message}`,
      request: answer.isFrame ? { ...HELLO, stream: true } : HELLO,
      answer,
      about: 'answer',
    })),
  ];
}

function errorCases(dialect: Dialect): ErrorCase[] {
  const statuses = Object.keys(ERROR_FORMS.get(dialect)!.words).map(Number);
  return statuses.flatMap((errorStatus) =>
    (MESSAGES[errorStatus] ?? ['it is so']).flatMap((message) =>
      [false, true].map((isFrame) => ({ errorStatus, message, isFrame })),
    ),
  );
}

interface Given {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** The provider's response. */
function givenTo({ dialect }: Form, { request, answer }: Question): Given {
  const stream = request.stream === true;
  const headers = { 'content-type': stream ? dialect.streamType : 'application/json' };
  if (!('errorStatus' in answer))
    return {
      status: 200,
      headers,
      body: stream ? dialect.stream(answer) : Buffer.from(JSON.stringify(dialect.whole(answer))),
    };
  const { errorStatus, message, isFrame } = answer;
  const forms = ERROR_FORMS.get(dialect)!;
  if (isFrame) return { status: 200, headers, body: forms.frame(errorStatus, message) };
  const body = Buffer.from(forms.body(errorStatus, message));
  return { status: errorStatus, headers: { ...headers, ...forms.headers(errorStatus) }, body };
}

interface Sheet {
  readonly form: Form;
  readonly provider: Provider;
  readonly questions: readonly Question[];
}

/** On all questions, sheet after sheet. One process for all: it takes seconds of CPU to load LiteLLM. */
async function verdictsOf(sheets: readonly Sheet[]): Promise<Verdict[]> {
  const child = spawn(python, ['test/judges/litellm_judge.py'], { stdio: ['pipe', 'pipe', 'inherit'] });
  child.stdin.end(
    sheets
      .flatMap(({ form, questions }) =>
        questions.map((question) => {
          const { id, request } = question;
          const { body, ...given } = givenTo(form, question);
          const answer = { ...given, body: body.toString('base64') };
          return `${JSON.stringify({ id, model: form.judgeModel, request, answer })}\n`;
        }),
      )
      .join(''),
  );
  return (await text(child.stdout))
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Verdict);
}

/** The body that we send, or `{ refused: field }`. */
function oursSent(form: Form, provider: Provider, request: Question['request']): object {
  try {
    const { body } = provider.write(callOf(form, request));
    return plainRequest(form.dialect, JSON.parse(body) as object);
  } catch (error) {
    if (error instanceof FieldError) return { refused: error.field };
    throw error;
  }
}

/** What a caller gets of us, or `{ failed: status }`. */
function oursGiven(form: Form, provider: Provider, question: Question): object {
  const call = callOf(form, question.request);
  const { status, headers, body } = givenTo(form, question);
  try {
    if (status !== 200) {
      const { status: failed, code } = provider.readError(status, (name) => headers[name], body.toString());
      return { failed: code ?? failed };
    }
    if (!call.stream) return plainChat(JSON.parse(provider.readResponse(body, call).text) as object);
    const stream = provider.openStream(call);
    const events = stream.push(body) + stream.end();
    return plainChat(joinedChat(chunksOf(events)));
  } catch (error) {
    if (error instanceof ProviderError) return { failed: error.failure.code ?? error.failure.status };
    throw error;
  }
}

function judged(form: Form, { about, request }: Question, verdict: Verdict): object {
  if (about === 'request')
    return verdict.sent === null ? { refused: '*' } : plainRequest(form.dialect, verdict.sent as object);
  if (verdict.error !== null) return { failed: verdict.error.kind ?? verdict.error.status };
  return plainChat(request.stream === true ? joinedChat(verdict.chunks!) : verdict.completion!);
}

function report(
  t: Test,
  found: readonly (Difference & { id: string })[],
  listed: (typeof LISTED)[string],
): void {
  const met = new Map<object, number>();
  const unlisted = new Map<string, string[]>();
  for (const { id, line } of found) {
    const entry = listed.find(({ difference, cases }) => difference.test(line) && (cases?.test(id) ?? true));
    if (entry === undefined) unlisted.set(line, [...(unlisted.get(line) ?? []), id]);
    else met.set(entry, (met.get(entry) ?? 0) + 1);
  }
  for (const [line, ids] of unlisted)
    t.fail(`not listed: ${line} in ${ids.length}: ${ids.slice(0, 6).join('; ')}`);
  for (const entry of listed)
    t.ok(met.has(entry), `listed and met: ${entry.difference.source} ${entry.cases?.source ?? ''}`);
  t.comment(`${found.length} differences in ${met.size} classes`);
}

const SHEETS = FORMS.flatMap((form): Sheet[] => {
  const provider = PROVIDERS[form.provider];
  return provider === undefined ? [] : [{ form, provider, questions: questionsOf(form) }];
});
let given: Promise<Verdict[]> | undefined;

for (const [index, { form, provider, questions }] of SHEETS.entries()) {
  void t.test(form.name, NO_JUDGE, async (t) => {
    t.ok(questions.length >= CASES_MIN, `${questions.length} cases`);
    const before = SHEETS.slice(0, index).reduce((sum, sheet) => sum + sheet.questions.length, 0);
    const verdicts = (await (given ??= verdictsOf(SHEETS))).slice(before, before + questions.length);
    t.same(
      verdicts.map(({ id }) => id),
      questions.map(({ id }) => id),
      'a verdict on each',
    );
    const found: (Difference & { id: string })[] = [];
    for (const [index, question] of questions.entries()) {
      const ours =
        question.about === 'request'
          ? oursSent(form, provider, question.request)
          : oursGiven(form, provider, question);
      const judges = judged(form, question, verdicts[index]!);
      found.push(...differencesOf(ours, judges).map((difference) => ({ ...difference, id: question.id })));
    }
    report(t, found, LISTED[form.name] ?? []);
  });
}
