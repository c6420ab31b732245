/** Calls with an `Idempotency-Key` that several processes of one host could make. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { asBinary } from 'lmdb';
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
  t.equal(claims.acquire({ ...CLAIM, bodyDigest: 'bb' }), 'aa', 'with the body of the first');
  t.equal(
    claims.acquire({ ...CLAIM, account: asAccountIndex(4) }),
    undefined,
    'another account’s key is another',
  );
  claims.release([CLAIM]);
  t.equal(claims.acquire(CLAIM), 'aa', 'another’s is left alone');
  await say({ giveBack: CLAIM });
  t.equal(claims.acquire(CLAIM), undefined);
  t.same(await say({ take: { ...CLAIM, bodyDigest: 'cc' } }), { elsewhere: 'aa' });
  t.equal(claims.acquire(CLAIM), undefined, 'who has it may take it again');

  t.equal(claims.acquire(LATER), 'aa');
  child.kill('SIGKILL');
  await once(child, 'exit');
  t.equal(claims.acquire(LATER), undefined);
  t.equal(Array.from(file.locks.getKeys()).length, 3);
  await file.environment.close();
});

void t.test('rows of processes that have ended are removed by who comes next', async (t) => {
  const file = openLeaseFile(t.testdir());
  file.locks.putSync([1, 'dead'], { process: '1 2 3', bodyDigest: 'aa' });
  file.locks.putSync([2, 'rubbish'], 5);
  const undecodable = asBinary(Buffer.from([0xdd, 0xff, 0xff, 0xff, 0xff]));
  file.locks.putSync([2, 'torn'], undecodable);
  const claims = new SharedLocks(file);
  t.same(Array.from(file.locks.getKeys()), []);
  file.locks.putSync([CLAIM.account, CLAIM.key], undecodable);
  claims.acquire(CLAIM);
  t.same(new SharedLocks(file).acquire(CLAIM), undefined);
  t.same(Array.from(file.locks.getKeys()), [[3, 'k']]);
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
  const claims = new SharedLocks({ locks: file.locks, environment });
  claims.acquire(CLAIM);
  claims.acquire(LATER);
  full = true;
  claims.release([CLAIM, LATER]);
  t.throws(() => claims.acquire({ ...CLAIM, key: 'other' }), { message: /no space/ });
  full = false;
  t.equal(claims.acquire(LATER), undefined);
  claims.release([]);
  t.same(Array.from(file.locks.getKeys()), [[3, 'later']]);
  await file.environment.close();
});
