/** Credits by commands: two at once, and the same one again, beside a gateway and on the books alone. */
import t from 'tap';
import { runCommand, type CommandEnd } from '../support/command.js';
import { startGateway, testSettings } from '../support/gateway.js';

interface CreditsView {
  readonly data: readonly { readonly amount: string; readonly note: string }[];
}

void t.test('two commands at once are both booked, and a repeated one once', async (t) => {
  const gateway = await startGateway(t, { config: testSettings('echo:') });
  const run = (...args: string[]): Promise<CommandEnd> => runCommand(gateway.folder, [...args, '--json']);
  const credit = (...args: string[]): Promise<CommandEnd> => run('accounts', 'credit', 'acme', ...args);
  t.match(await run('accounts', 'create', 'acme', '--plan', 'ample'), { code: 0 });

  /** `place` is a word for the notes and keys; `before` is what earlier rounds have left. */
  const round = async (place: string, before: number): Promise<void> => {
    const apart = await Promise.all([credit('1.00', '--note', 'one'), credit('2.50', '--note', 'two')]);
    for (const end of apart) t.match(end, { code: 0, stderr: '' }, place);
    const key = ['--note', place, '--idempotency-key', `invoice-${place}`];
    const same = await Promise.all([credit('10.00', ...key), credit('10.00', ...key)]);
    same.push(await credit('10.00', ...key));
    for (const end of same) t.match(end, { code: 0, stderr: '' }, place);
    const balance = `${before + 13}.50`;
    t.same(
      same.map((end) => (end.json() as { balance: string }).balance),
      [balance, balance, balance],
      'each is told what the first was told',
    );
    t.match(await credit('11.00', ...key), { code: 1, stderr: /^idempotency_key "invoice-\w+" was given/ });
    t.match((await run('accounts', 'show', 'acme')).json(), { balance, credited: balance });
    const { data } = (await run('accounts', 'credits', 'acme')).json() as CreditsView;
    const last = data.slice(-3).map(({ amount, note }) => `${amount} ${note}`);
    t.same(last.sort(), [`1.00 one`, `10.00 ${place}`, `2.50 two`], 'the journal has each once');
  };
  await round('gateway', 0);
  await run('accounts', 'debit', 'acme', '0.50');
  t.equal(await gateway.stop(), 0);
  await round('books', 13);
  t.match(await run('audit'), { code: 0 });
});
