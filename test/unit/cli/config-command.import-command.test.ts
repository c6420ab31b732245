import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { runCommand } from '../../support/command.js';
import { checkRefused, commandFolder } from './support.js';

const FIXTURE = join(process.cwd(), 'test/fixtures/litellm/config.yaml');

void t.test('settings on one stream, what was left behind on the other', async (t) => {
  const { folder, run } = commandFolder(t);
  writeFileSync(join(folder, 'config.yaml'), readFileSync(FIXTURE));
  const end = await run('config', 'import-litellm', 'config.yaml');
  t.equal(end.code, 2, 'a script hears that entries were left out');
  t.match(end.stderr, /^Left out: [1-9]\d* of model_list's entries$/m);
  t.match(end.stderr, /^config\.yaml:2: model_list\[0\]\.model_name: max_output_tokens is not in the file/);
  t.match(end.stderr, /^config\.yaml:12: model_list\[1\]/m);
  const last = end.stderr.trimEnd().split('\n').at(-1)!;
  t.match(last, /^Set before the start: AZURE_API_KEY_EU, AZURE_CANADA, /);
  const variables = last.slice(last.indexOf(':') + 2).split(', ');
  writeFileSync(join(folder, 'tollgate.yaml'), end.stdout);
  const env = Object.fromEntries(variables.map((name) => [name, 'https://somewhere.example']));
  t.match(await runCommand(folder, ['config', 'check'], env), {
    code: 0,
    stdout: 'tollgate.yaml: fine (models: 6, plans: 1)\n',
  });
  const json = (await run('config', 'import-litellm', 'config.yaml', '--json')).json() as {
    yaml: string;
    remarks: { line: number }[];
  };
  t.equal(json.yaml, end.stdout);
  t.same(
    json.remarks.slice(0, 2).map(({ line }) => line),
    [2, 12],
  );
});

void t.test('entries that are left out', async (t) => {
  const { folder, run } = commandFolder(t);
  const entry = (name: string): string => `  - ${name}litellm_params: { model: openai/gpt-4o }\n`;
  const cases: readonly (readonly [string, number, RegExp])[] = [
    [entry('model_name: a\n    '), 0, /^Set before the start: OPENAI_API_KEY$/m],
    [
      entry('model_name: a\n    ') + entry(''),
      2,
      /:4: model_list\[1\]\.model_name: is missing: want a name of/,
    ],
    [
      entry('model_name: a\n    ') + entry('model_name: a b\n    '),
      2,
      /:4: model_list\[1\]\.model_name: want a name of/,
    ],
  ];
  for (const [entries, code, told] of cases) {
    const redis = code === 0 ? '' : 'router_settings: { redis_host: valkey }\n';
    writeFileSync(join(folder, 'config.yaml'), `model_list:\n${entries}${redis}`);
    const end = await run('config', 'import-litellm', 'config.yaml');
    t.equal(end.code, code, entries);
    t.match(end.stderr, told);
    t.equal(
      /redis_host: .*setting sharing: \{ url \}/.test(end.stderr),
      code !== 0,
      'where limits are shared',
    );
    t.match(end.stdout, /^ +- id: a$/m, 'what can be carried over is printed');
    const json = await run('config', 'import-litellm', 'config.yaml', '--json');
    t.match(json.json(), { leftOut: code === 0 ? 0 : 1 });
    t.equal(json.code, code);
  }
});

void t.test('files that are none', async (t) => {
  const { folder, run } = commandFolder(t);
  checkRefused(
    t,
    await run('config', 'import-litellm', 'nowhere.yaml'),
    /^nowhere\.yaml: cannot be read: ENOENT/,
  );
  writeFileSync(join(folder, 'large.yaml'), `#${'x'.repeat(1024 * 1024)}`);
  checkRefused(
    t,
    await run('config', 'import-litellm', 'large.yaml'),
    /^large\.yaml: longer than 1048576 bytes/,
  );
});
