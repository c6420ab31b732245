import t from 'tap';
import type { GroupView } from '#src/admin/views.js';
import { treeRows } from '#src/cli/group-commands.js';
import { checkMisused, checkRefused, commandFolder, makeBooks } from './support.js';

/** Times and ids differ from run to run. */
const steady = (text: string): string =>
  text
    .replaceAll(/(grp|acct)_.{16}/g, '$1_0123456789abcdef')
    .replaceAll(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ/g, '2026-01-31 16:00:00Z');

void t.test('a group’s life without a gateway', async (t) => {
  const { folder, run } = commandFolder(t);
  await makeBooks(folder);
  t.match(await run('groups', 'list'), {
    code: 0,
    stdout: 'There are no groups: see "groups create --help".\n',
  });
  t.same((await run('groups', 'tree', '--json')).json(), { data: [], next: null });
  const made = await run('groups', 'create', 'research', '--spend-per-month', '250.00', '--json');
  t.match(made, { code: 0, stderr: '' });
  t.match(made.json(), {
    name: 'research',
    path: ['research'],
    quotas: { spend_per_month: { limit: '250.00', used: '0.00', held: '0.00', left: '250.00' } },
  });
  t.same((await run('groups', 'show', 'research', '--json')).json(), made.json());
  const vision = ['groups', 'create', 'vision', '--parent', 'research', '--tokens-per-minute', '5000'];
  t.match((await run(...vision, '--json')).json(), { path: ['research', 'vision'] });
  t.match((await run('groups', 'list', '--parent', 'research', '--json')).json(), { data: { length: 1 } });

  await run('accounts', 'create', 'ann', '--plan', 'free', '--group', 'vision');
  await run('accounts', 'create', 'bob', '--plan', 'free');
  t.match((await run('accounts', 'set-group', 'bob', '--group', 'research', '--json')).json(), {
    group_name: 'research',
  });
  const inVision = (await run('accounts', 'list', '--group', 'vision', '--json')).json();
  t.match(inVision, { data: [{ name: 'ann', group_name: 'vision' }], next: null });
  const limits = ['groups', 'set-limits', 'vision', '--tokens-per-minute', 'none', '--calls-per-day', '9'];
  const changed = (await run(...limits, '--json')).json() as { quotas: object };
  t.same(Object.keys(changed.quotas), ['calls_per_day']);
  checkRefused(t, await run('groups', 'delete', 'vision', '--yes'), /vision.*account/);
  await run('accounts', 'set-group', 'ann', '--none');
  checkMisused(t, await run('groups', 'delete', 'vision'), /^Nobody is here to confirm: give --yes/);
  t.match((await run('groups', 'delete', 'vision', '--yes')).stdout, /^Deleted grp_.{16}\.\n$/);
});

void t.test('what people see', async (t) => {
  const { run } = commandFolder(t);
  const shown = await run(
    ...['groups', 'create', 'research', '--spend-per-month', '250.00', '--tokens-per-day', '100000'],
  );
  t.equal(
    steady(shown.stdout),
    [
      'name             research',
      'id               grp_0123456789abcdef',
      'accounts         0',
      'groups           0',
      'tokens per day   0 of 100,000 (0 %), resets 2026-01-31 16:00:00Z',
      'spend per month  0.00 of 250.00 (0 %), resets 2026-01-31 16:00:00Z',
      'created          2026-01-31 16:00:00Z',
      '',
    ].join('\n'),
  );
  await run('groups', 'create', 'vision', '--parent', 'research', '--requests-per-minute', '60');
  await run('groups', 'create', 'edge', '--parent', 'vision');
  await run('groups', 'create', 'sales');
  await run('accounts', 'create', 'ann', '--plan', 'free', '--group', 'edge');
  t.match((await run('groups', 'show', 'edge')).stdout, /\nin +research \/ vision\n.*\n.*\nquotas +none\n/);
  t.equal(
    steady((await run('groups', 'tree')).stdout),
    [
      'GROUP       ACCOUNTS  QUOTA                USED                  HELD  RESETS',
      'research           0  tokens per day       0 of 100,000 (0 %)          2026-01-31 16:00:00Z',
      '│                     spend per month      0.00 of 250.00 (0 %)        2026-01-31 16:00:00Z',
      '└─ vision          0  requests per minute  0 of 60 (0 %)',
      '   └─ edge         1  none',
      'sales              0  none',
      '',
    ].join('\n'),
  );
  t.match(
    steady((await run('groups', 'list')).stdout),
    /^GROUP +ID +IN +ACCOUNTS +QUOTA .*\nresearch +grp_0123456789abcdef +0 +tokens per day +0 of 100,000 .*\n +spend per month .*\nvision +grp_0123456789abcdef +research +0 +requests per minute /,
  );
  t.match(
    steady((await run('accounts', 'list')).stdout),
    /^NAME +ID +PLAN +GROUP +ACTIVE .*\nann +acct_0123456789abcdef +free +edge +yes +0\.00 /,
  );
  t.match((await run('accounts', 'show', 'ann')).stdout, /\nplan +free\ngroup +edge\nactive +yes\n/);
});

void t.test('refusals end with 1, misuse with 2', async (t) => {
  const { run } = commandFolder(t);
  await run('groups', 'create', 'research');
  checkRefused(t, await run('groups', 'show', 'reserch'), /^there is no group reserch.*research/);
  checkRefused(t, await run('groups', 'create', 'research'), /^name must be unique/);
  checkRefused(
    t,
    await run('groups', 'create', 'x', '--tokens-per-day', '0'),
    /^tokens_per_day must be a whole number from 1 to/,
  );
  checkRefused(
    t,
    await run('groups', 'set-limits', 'research', '--spend-per-day', '0.00'),
    /^spend_per_day must be at least 0.000000001, got 0/,
  );
  checkMisused(t, await run('groups', 'create', 'x', '--tokens-per-day', 'many'), /A whole number is wanted/);
  checkMisused(
    t,
    await run('groups', 'set-limits', 'research', '--spend-per-day', 'all'),
    /An amount such as 10\.00 is wanted/,
  );
  checkMisused(t, await run('groups', 'set-limits', 'research'), /^Nothing to change: give a limit/);
  checkMisused(
    t,
    await run('groups', 'create', 'x', '--token-per-day', '5'),
    /unknown option '--token-per-day'[^]*--tokens-per-day/,
  );
  checkMisused(t, await run('accounts', 'set-group', 'ann'), /^Give --group or --none\./);
  checkMisused(t, await run('accounts', 'set-group', 'ann', '--none', '--group', 'x'), /^Give --group or/);
});

void t.test('branches of a tree', (t) => {
  const group = (...path: string[]): GroupView => ({
    id: 'grp_x',
    name: path.at(-1)!,
    parent: null,
    path,
    accounts: 0,
    groups: 0,
    quotas: path.at(-1) === 'b' || path.at(-1) === 'e' ? TWO : {},
    created: 0,
  });
  const use = { limit: 5, used: 0, held: 0, left: 5, resets_at: null };
  const TWO = { tokens_per_minute: use, calls_in_flight: use };
  const drawn = (groups: readonly GroupView[]) => treeRows(groups).map(({ name }) => name);
  const all = [
    group('a'),
    group('a', 'b'),
    group('a', 'b', 'c'),
    group('a', 'b', 'd'),
    group('a', 'e'),
    group('f'),
    group('f', 'g'),
    group('f', 'g', 'h'),
    group('f', 'g', 'h', 'i'),
  ];
  t.same(drawn(all), [
    'a',
    '├─ b',
    '│  │',
    '│  ├─ c',
    '│  └─ d',
    '└─ e',
    '   ',
    'f',
    '└─ g',
    '   └─ h',
    '      └─ i',
  ]);
  t.same(drawn(all.slice(1, 4)), ['b', '│', '├─ c', '└─ d'], 'below one group');
  t.same(drawn([]), []);
  t.end();
});
