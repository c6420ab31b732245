/** The record of changes over the interface: its span, and one verification at a time. */
import t from 'tap';
import { checkError } from '../../support/error-answer.js';
import type { Answer } from '../../support/http.js';
import { startAdminHouse } from './support.js';

const ROOT = '/admin/v1';

void t.test('a span that ends before it begins is told', async (t) => {
  const house = await startAdminHouse(t);
  const made = await house.send('POST', `${ROOT}/operators`, { name: 'ann', role: 'viewer' });
  t.equal(made.status, 200, made.body);
  const seconds = Math.floor(house.clock.wallMs() / 1_000);
  const ask = (from: number, to: number): Promise<Answer> =>
    house.send('GET', `${ROOT}/changes?from=${from}&to=${to}`);
  const turned = checkError(t, await ask(seconds + 1, seconds), 'invalid_parameters', 'turned round');
  t.match(turned, /^from must not be after to$/);
  t.match((await ask(seconds, seconds)).json(), { data: [{ action: 'operators.create' }] }, 'one second');
});

void t.test('the changes are verified by one request at a time', async (t) => {
  const house = await startAdminHouse(t);
  const { changes } = house.registry;
  const verify = changes.verify.bind(changes);
  let finish: () => void = () => undefined;
  const begun = new Promise<AbortSignal | undefined>((resolve) => {
    changes.verify = async (left) => {
      resolve(left);
      await new Promise<void>((end) => (finish = end));
      return verify();
    };
  });
  const ask = (): Promise<Answer> => house.send('GET', `${ROOT}/changes/verify`);
  const first = ask();
  t.equal((await begun)?.aborted, false, 'it ends if who asked leaves');
  const second = await ask();
  t.match(checkError(t, second, 'overloaded', 'beside another'), /verified already/);
  t.equal(second.headers['retry-after'], '5');
  finish();
  t.equal((await first).status, 200);
  changes.verify = verify;
  t.equal((await ask()).status, 200, 'one after another');
});
