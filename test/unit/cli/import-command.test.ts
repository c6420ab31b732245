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
  t.equal(end.code, 0);
  t.match(end.stderr, /^config\.yaml:8: model_list\[0\]/);
  const last = end.stderr.trimEnd().split('\n').at(-1)!;
  t.match(last, /^Set before the start: AZURE_API_KEY_EU, AZURE_CANADA, /);
  const variables = last.slice(last.indexOf(':') + 2).split(', ');
  writeFileSync(join(folder, 'tollgate.yaml'), end.stdout);
  const env = Object.fromEntries(variables.map((name) => [name, 'https://somewhere.example']));
  t.match(await runCommand(folder, ['config', 'check'], env), {
    code: 0,
    stdout: 'tollgate.yaml: fine (models: 5, plans: 1)\n',
  });
  const json = (await run('config', 'import-litellm', 'config.yaml', '--json')).json() as {
    yaml: string;
    remarks: { line: number }[];
  };
  t.equal(json.yaml, end.stdout);
  t.equal(json.remarks[0]!.line, 8);
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
