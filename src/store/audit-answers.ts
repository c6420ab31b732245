/**
 * The audit of kept answers: each has its age, each age its answer, and together they are the bytes that are counted. Main
 * thread of a command.
 */
import { asAccountIndex } from '../core/units.js';
import { answerBytesOf } from './answer-table.js';
import type { AuditScope, Subject } from './audit-scope.js';
import { readAnswer } from './record-codec.js';

type Age = [endedMs: number, account: number, key: string];

export function auditAnswers(scope: AuditScope): void {
  const { snapshot } = scope;
  let answers = 0;
  for (const { key: place, value } of snapshot.rows('answers')) {
    answers++;
    const [account, key] = place;
    const owner = scope.accountIdOf(account) ?? null;
    const read = (stored: unknown, named: string) =>
      readAnswer(stored, { account: asAccountIndex(account), key }, named);
    const record = scope.read(read, 'answers', place, value, owner);
    if (record === undefined) continue;
    const subject: Subject = { account: owner, place: snapshot.place('answers', place) };
    if (owner === null)
      scope.differs(subject, `the owner of account slot ${account}`, undefined, 'an account');
    const bytes = snapshot.get('answer_ages', [record.endedMs, account, key]);
    scope.expect(subject, 'the bytes under its age', figureOf(bytes), answerBytesOf(record));
  }
  auditAges(scope, answers);
}

function auditAges(scope: AuditScope, answers: number): void {
  const { snapshot } = scope;
  let [ages, sum] = [0, 0];
  for (const { key, value } of snapshot.rows('answer_ages')) {
    ages++;
    sum += Number(value);
    const [, account, text]: Age = key;
    if (snapshot.get('answers', [account, text]) === undefined) {
      const subject: Subject = { account: null, place: snapshot.place('answer_ages', key) };
      scope.differs(subject, 'the answer of this age', undefined, 'an answer');
    }
  }
  const subject: Subject = { account: null, place: snapshot.place('meta', 'answer_bytes') };
  scope.expect(subject, 'the number of ages', ages, answers);
  scope.expect(subject, 'the bytes of all answers', figureOf(snapshot.get('meta', 'answer_bytes') ?? 0), sum);
}

/** Of what should be a number. */
function figureOf(value: unknown): number | string | undefined {
  return typeof value === 'number' || value === undefined ? value : 'damaged';
}
