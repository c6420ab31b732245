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
import type { AnswerCase } from '../support/provider-dialects.js';
import { callOf, FORMS, type Form } from '../support/provider-forms.js';
import { requestCases } from '../support/provider-requests.js';
import { chunksOf } from '../support/sse.js';
import { differencesOf, LISTED, type Difference } from './differences.js';
import { plainChat, plainRequest } from './plain-form.js';

const CASES_MIN = 150;
const python = resolve('build/tools/judges-python/bin/python');
const NO_JUDGE = existsSync(resolve('build/tools/judges-python/installed.txt'))
  ? {}
  : { skip: 'no Python with LiteLLM: test/setup-tools.sh judges' };

interface Question {
  readonly id: string;
  readonly request: Readonly<Record<string, unknown>>;
  readonly answer: AnswerCase;
  /** What is compared. */
  readonly about: 'request' | 'answer';
}

interface Verdict {
  readonly id: string;
  readonly sent: unknown;
  readonly completion: object | null;
  readonly chunks: object[] | null;
  readonly error: { readonly status: number | null; readonly message: string } | null;
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
  ];
}

async function verdictsOf({ dialect, judgeModel }: Form, questions: readonly Question[]): Promise<Verdict[]> {
  const child = spawn(python, ['test/judges/litellm_judge.py'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const type = dialect.streamType;
  child.stdin.end(
    questions
      .map(({ id, request, answer }) => {
        const stream = request.stream === true;
        const body = stream ? dialect.stream(answer) : Buffer.from(JSON.stringify(dialect.whole(answer)));
        const headers = { 'content-type': stream ? type : 'application/json' };
        const given = { status: 200, headers, body: body.toString('base64') };
        return `${JSON.stringify({ id, model: judgeModel, request, answer: given })}\n`;
      })
      .join(''),
  );
  return (await text(child.stdout))
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Verdict);
}

/** The body that we send, or `{ refused: field }`. */
async function oursSent(form: Form, provider: Provider, request: Question['request']): Promise<object> {
  try {
    const { body } = await provider.write(callOf(form, request));
    return plainRequest(form.dialect, JSON.parse(body) as object);
  } catch (error) {
    if (error instanceof FieldError) return { refused: error.field };
    throw error;
  }
}

/** What a caller gets of us, or `{ failed: status }`. */
function oursGiven(form: Form, provider: Provider, { request, answer }: Question): object {
  const call = callOf(form, request);
  try {
    if (!call.stream) {
      const body = Buffer.from(JSON.stringify(form.dialect.whole(answer)));
      return plainChat(JSON.parse(provider.readResponse(body, call)) as object);
    }
    const stream = provider.openStream(call);
    const events = stream.push(form.dialect.stream(answer)) + stream.end();
    return plainChat(joinedChat(chunksOf(events)));
  } catch (error) {
    if (error instanceof ProviderError) return { failed: error.failure.status };
    throw error;
  }
}

function judged(form: Form, { about, request }: Question, verdict: Verdict): object {
  if (about === 'request')
    return verdict.sent === null ? { refused: '*' } : plainRequest(form.dialect, verdict.sent as object);
  if (verdict.error !== null) return { failed: verdict.error.status };
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

for (const form of FORMS) {
  const provider = PROVIDERS[form.provider];
  if (form.judgeModel === undefined || provider === undefined) continue;
  void t.test(form.name, NO_JUDGE, async (t) => {
    const questions = questionsOf(form);
    t.ok(questions.length >= CASES_MIN, `${questions.length} cases`);
    const verdicts = await verdictsOf(form, questions);
    t.equal(verdicts.length, questions.length, 'a verdict on each');
    const found: (Difference & { id: string })[] = [];
    for (const [index, question] of questions.entries()) {
      const ours =
        question.about === 'request'
          ? await oursSent(form, provider, question.request)
          : oursGiven(form, provider, question);
      const judges = judged(form, question, verdicts[index]!);
      found.push(...differencesOf(ours, judges).map((difference) => ({ ...difference, id: question.id })));
    }
    report(t, found, LISTED[form.name] ?? []);
  });
}
