/** The spare descriptors of the guard. A shortage: test/e2e/overload.test.ts. */
import { readdirSync, readlinkSync } from 'node:fs';
import t from 'tap';
import { DescriptorGuard } from '#src/request/descriptor-guard.js';

const FOLDER = '/proc/self/fd';
/** How many descriptors of this process are open on /dev/null. */
function openOnNull(): number {
  return readdirSync(FOLDER).filter((descriptor) => {
    try {
      return readlinkSync(`${FOLDER}/${descriptor}`) === '/dev/null';
    } catch {
      return false;
    }
  }).length;
}

void t.test('spares are kept until the close, and none is opened after it', (t) => {
  const before = openOnNull();
  const guard = new DescriptorGuard();
  t.equal(openOnNull() - before, 8);
  guard.check();
  t.equal(openOnNull() - before, 8, 'another check keeps no more');
  t.equal(guard.isShort, false);
  guard.close();
  t.equal(openOnNull(), before);
  guard.close();
  // A call that is cut as the listener ends may ask for a check.
  guard.check();
  t.equal(openOnNull(), before);
  t.equal(guard.isShort, false);
  t.end();
});
