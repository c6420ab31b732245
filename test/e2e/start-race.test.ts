/** Commands that run while a gateway starts, and while one stops: what they say is done is done, and live. */
import t from 'tap';
import { runCommand } from '../support/command.js';
import { startGateway, temporaryFolder, testSettings } from '../support/gateway.js';
import { startMock } from '../support/mock.js';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** More than one at a time, so that some wait for each other and all for the gateway. */
const COMMANDS = 4;

void t.test('what a command does during a start is live after it', async (t) => {
  const mock = await startMock(t);
  const folder = temporaryFolder(t);
  const config = testSettings(mock.url);
  writeFileSync(join(folder, 'tollgate.yaml'), JSON.stringify(config));
  t.equal(
    (await runCommand(folder, ['accounts', 'create', 'acme', '--plan', 'ample', '--credit', '10'])).code,
    0,
  );

  const create = (round: string, at: number) =>
    runCommand(folder, ['keys', 'create', '--account', 'acme', '--name', `${round}-${at}`, '--json']);
  const starting = startGateway(t, { folder, config });
  const ends = await Promise.all(Array.from({ length: COMMANDS }, (_, at) => create('start', at)));
  const gateway = await starting;
  for (const end of ends) {
    t.equal(end.code, 0, end.stderr);
    const { key } = end.json() as { key: string };
    t.equal((await gateway.chat(key, 'Hello')).status, 200, 'the key is live');
  }

  const stopping = gateway.stop();
  const last = await Promise.all(Array.from({ length: COMMANDS }, (_, at) => create('stop', at)));
  t.equal(await stopping, 0);
  // A gateway that is on its way out may refuse to be spoken to; what it did not do it does not claim.
  const done = last.filter(({ code }) => code === 0).map((end) => (end.json() as { name: string }).name);
  const list = (await runCommand(folder, ['keys', 'list', '--json'])).json() as { data: { name: string }[] };
  const names = list.data.map(({ name }) => name);
  t.same(
    done.filter((name) => !names.includes(name)),
    [],
    `${done.length} of ${COMMANDS} were done during the stop`,
  );
  t.match((await runCommand(folder, ['audit'])).stdout, /The books balance\./);
});
