/** Commands that run while a gateway starts, and while one stops: what they say is done is done, and live. */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { StoreHold } from '#src/store/store-hold.js';
import { runCommand } from '../support/command.js';
import { eventually, startGateway, temporaryFolder, testSettings } from '../support/gateway.js';
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

/** Longer than a gateway waits for a command at its first start. */
const LONG_COMMAND_MS = 11_000;

void t.test(
  'a command that came while no gateway ran, and takes long, does not end the service',
  async (t) => {
    const mock = await startMock(t);
    const gateway = await startGateway(t, { config: testSettings(mock.url) });
    const { key } = await gateway.admin.customer();
    process.kill(gateway.pid(), 'SIGKILL');
    const hold = await eventually('the hold of a command', () =>
      StoreHold.take(gateway.dataFolder, { kind: 'command' }),
    );
    await sleep(LONG_COMMAND_MS);
    await eventually('a line in the log', () =>
      gateway.log().some((line) => line.includes('a command keeps the gateway from serving'))
        ? true
        : undefined,
    );
    await hold.giveBack();
    const answer = await eventually('an answer', () => gateway.chat(key, 'Hello'));
    t.equal(answer.status, 200);
    t.equal(await gateway.stop(), 0);
  },
);
