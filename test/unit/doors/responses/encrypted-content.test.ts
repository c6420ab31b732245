/** Content that clients have stored is read by every later version; content of other services is not read. */
import t from 'tap';
import { carriedIn, encryptedContent } from '#src/doors/responses/encrypted-content.js';

/** As a client may have stored it. */
const STORED =
  'tollgate-1:eyJibG9ja3MiOlt7InR5cGUiOiJ0aGlua2luZyIsInNpZ25hdHVyZSI6IsOpPSJ9XSwiZXh0cmEiOnsiZ29vZ2xlIjp7fX19';
const CARRIED = { blocks: [{ type: 'thinking', signature: 'é=' }], extra: { google: {} } };

void t.test('the form of stored content', (t) => {
  t.same(carriedIn(STORED), CARRIED);
  t.equal(encryptedContent(CARRIED), STORED);
  for (const other of [undefined, 3, 'gAAAAB', 'tollgate-1:e30', 'tollgate-1:!', 'tollgate-2:e30='])
    t.same(carriedIn(other) ?? {}, {}, String(other));
  t.end();
});
