/** Calls with an `Idempotency-Key` that several processes of one host could make. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { asAccountIndex } from '#src/core/units.js';
import { openLeaseFile } from '#src/sharing/lease-file.js';
import { SharedLocks } from '#src/sharing/shared-locks.js';

const ACCOUNT = asAccountIndex(3);
const CLAIM = { account: ACCOUNT, key: 'k', bodyDigest: 'aa' };
const LATER = { ...CLAIM, key: 'later' };

void t.test('a key is one process’s until it is given back, or the process has ended', async (t) => {
  const path = t.testdir();
  const file = openLeaseFile(path);
  const child = fork(new URL('../../fixtures/claim-holder.js', import.meta.url), [path]);
  t.teardown(() => child.kill('SIGKILL'));
  const say = async (order: object): Promise<unknown> => {
    const answered = once(child, 'message');
    child.send(order);
    const [answer] = (await answered) as [unknown];
    return answer;
  };
  t.same(await say({ take: CLAIM }), {});
  t.same(await say({ take: LATER }), {});
  const claims = new SharedLocks(file);
  t.equal(claims.take({ ...CLAIM, bodyDigest: 'bb' }), 'aa', 'with the body of the first');
  t.equal(
    claims.take({ ...CLAIM, account: asAccountIndex(4) }),
    undefined,
    'another account’s key is another',
  );
  claims.giveBack([CLAIM]);
  t.equal(claims.take(CLAIM), 'aa', 'another’s is left alone');
  await say({ giveBack: CLAIM });
  t.equal(claims.take(CLAIM), undefined);
  t.same(await say({ take: { ...CLAIM, bodyDigest: 'cc' } }), { elsewhere: 'aa' });
  t.equal(claims.take(CLAIM), undefined, 'who has it may take it again');

  t.equal(claims.take(LATER), 'aa');
  child.kill('SIGKILL');
  await once(child, 'exit');
  t.equal(claims.take(LATER), undefined);
  t.equal(Array.from(file.claims.getKeys()).length, 3);
  await file.environment.close();
});

void t.test('rows of processes that have ended are removed by who comes next', async (t) => {
  const file = openLeaseFile(t.testdir());
  file.claims.putSync([1, 'dead'], { process: '1 2 3', bodyDigest: 'aa' });
  file.claims.putSync([2, 'rubbish'], 5);
  const claims = new SharedLocks(file);
  t.same(Array.from(file.claims.getKeys()), []);
  claims.take(CLAIM);
  t.same(new SharedLocks(file).take(CLAIM), undefined);
  t.same(Array.from(file.claims.getKeys()), [[3, 'k']]);
  await file.environment.close();
});

void t.test('what could not be given back is tried again, but not where it was taken anew', async (t) => {
  const file = openLeaseFile(t.testdir());
  let full = false;
  const environment = {
    write: <Result>(work: () => Result): Result => {
      if (full) throw new Error('no space left on device');
      return file.environment.write(work);
    },
  };
  const claims = new SharedLocks({ claims: file.claims, environment });
  claims.take(CLAIM);
  claims.take(LATER);
  full = true;
  claims.giveBack([CLAIM, LATER]);
  t.throws(() => claims.take({ ...CLAIM, key: 'other' }), { message: /no space/ });
  full = false;
  t.equal(claims.take(LATER), undefined);
  claims.giveBack([]);
  t.same(Array.from(file.claims.getKeys()), [[3, 'later']]);
  await file.environment.close();
});
