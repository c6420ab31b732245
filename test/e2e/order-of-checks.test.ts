/**
 * Of two reasons to refuse a call the one that docs/limits.md names first is told: for a small body and for a
 * large one, which counter threads parse; in one process and in two, which share the limits.
 */
import t from 'tap';
import { startBed } from '../support/bed.js';
import { checkError, type ErrorName } from '../support/error-answer.js';
import { knownEverywhere, TEST_MODEL } from '../support/gateway.js';
import type { Answer } from '../support/http.js';

/** Above `parse_inline_bytes`, and more than the piece of a body that is looked at before all of it came. */
const LARGE_CHARS = 150_000;
const OUTPUT_TOKENS = 100_000;
const AT_ONCE = 12;

/** The forms of a body. Of the last one the model is known only when it has come as a whole. */
const FORMS = ['small', 'large', 'large, its model last'] as const;
type Form = (typeof FORMS)[number];
/** A little more than what the prompt costs. The output would cost 0.00225. */
const PROMPT_COSTS: Readonly<Record<Form, string>> = {
  small: '0.001',
  large: '0.2265',
  'large, its model last': '0.2265',
};

interface Reasons {
  /** The minute of the account is used up. */
  readonly minute?: true;
  readonly body?: true;
  readonly model?: true;
  /** The calls of the day are used up. */
  readonly day?: true;
  /** The balance pays for the prompt, and not for the output that the call asks for. */
  readonly balance?: true;
}
type Reason = keyof Reasons;

const CODES: Readonly<Record<Reason, ErrorName>> = {
  minute: 'rate_limit_exceeded',
  body: 'invalid_parameters',
  model: 'model_not_found',
  day: 'daily_limit_exceeded',
  balance: 'insufficient_quota',
};
const REASONS = Object.keys(CODES) as Reason[];

function bodyOf(form: Form, { body, model }: Reasons): object {
  const named = { model: model === true ? 'no-such-model' : TEST_MODEL };
  const content = 'x'.repeat(form === 'small' ? 5 : LARGE_CHARS);
  const rest = {
    messages: [{ role: 'user', content }],
    max_tokens: OUTPUT_TOKENS,
    ...(body === true && { temperature: 9 }),
  };
  return form === 'large, its model last' ? { ...rest, ...named } : { ...named, ...rest };
}

for (const processes of [1, 2])
  void t.test(`${processes} processes`, async (t) => {
    const plan = (id: string, minute: number, day: number): object => ({
      ...{ id, requests_per_minute: minute, calls_per_day: day },
    });
    const MANY = 1_000_000;
    const { gateway } = await startBed(t, {
      processes,
      plans: [
        plan('wide', MANY, MANY),
        plan('minute', 1, MANY),
        plan('day', MANY, 1),
        plan('both', 1, 1),
        plan('five', 5, MANY),
      ],
    });
    const { admin } = gateway;
    const customer = async (plan: string, credit: string): Promise<string> => {
      const { key } = await admin.customer({ plan, credit });
      if (processes > 1) await knownEverywhere(gateway, key);
      return key;
    };

    for (const [at, first] of REASONS.entries())
      for (const second of REASONS.slice(at + 1)) {
        const reasons: Reasons = { [first]: true, [second]: true };
        const { minute, day, balance } = reasons;
        const plan = minute === true ? (day === true ? 'both' : 'minute') : day === true ? 'day' : 'wide';
        for (const form of FORMS) {
          const key = await customer(plan, balance === true ? PROMPT_COSTS[form] : '1000.00');
          if (minute === true || day === true) {
            const used = await gateway.chat(key, 'Hello', { max_tokens: 1 });
            t.equal(used.status, 200, used.body);
          }
          const answer = await gateway.request(key, { body: bodyOf(form, reasons) });
          // As docs/limits.md says, a large body may be refused for its model before it is whole.
          const mayBeEarly = form === 'large' && first === 'body' && second === 'model';
          const code = mayBeEarly && answer.body.includes(CODES.model) ? CODES.model : CODES[first];
          checkError(t, answer, code, `${first}, ${second}: ${form}`);
        }
      }

    for (const form of FORMS)
      await t.test(`the minute is decided while the body comes: ${form}`, async (t) => {
        const key = await customer('five', '1000.00');
        const body = bodyOf(form, { model: true });
        const answers: Answer[] = await Promise.all(
          Array.from({ length: AT_ONCE }, () => gateway.request(key, { body })),
        );
        const codes = answers.map(
          (answer) => (JSON.parse(answer.body) as { error: { code: string } }).error.code,
        );
        t.equal(codes.filter((code) => code === CODES.model).length, 5, 'each has a permit');
        t.equal(codes.filter((code) => code === CODES.minute).length, AT_ONCE - 5);
      });
    t.equal(await gateway.stop(), 0);
  });
