import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import { Store } from '#src/store/store.js';
import { offlineRegistry, StoppedClock } from './support.js';

void t.test(
  'a credit that was acknowledged is there after kill -9, with its line in the journal',
  async (t) => {
    const path = t.testdir();
    const first = new Store(path);
    offlineRegistry(first, new StoppedClock()).accounts.create({
      name: 'a',
      planId: 'free',
      credit: asPicoUnits(0n),
    });
    await first.close();

    for (const killAfter of [1, 20]) {
      const store = new Store(path);
      const before = store.findAccountByName('a')!.credited;
      await store.close();

      const child = spawn(process.execPath, [fileURLToPath(new URL('creditor.js', import.meta.url)), path], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let output = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        output += text;
        if (output.includes(`${killAfter}\n`)) child.kill('SIGKILL');
      });
      await once(child, 'close');
      const acknowledged = BigInt(output.split('\n').filter((line) => line !== '').length);
      t.ok(acknowledged >= BigInt(killAfter));

      const after = new Store(path);
      const { credited } = after.findAccountByName('a')!;
      t.ok(credited - before >= acknowledged, `${acknowledged} acknowledged, ${credited - before} found`);
      t.ok(
        credited - before <= acknowledged + 1n,
        'at most the one that was not acknowledged yet is there too',
      );
      const sum = after
        .listCredits(asAccountIndex(0), 0, 1_000)
        .items.reduce((total, { amount }) => total + amount, 0n);
      t.equal(sum, credited, 'the journal adds up');
      const chain = await after.operatorChanges.verify();
      t.same(chain.problems, [], 'the chain of changes is whole');
      t.equal(BigInt(chain.head.number), credited, 'with a row for each credit, and no other');
      await after.close();
    }
  },
);
