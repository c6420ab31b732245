/** What is logged of the shared registry's state, and what a change that was not made is told. */
import t from 'tap';
import { joinFailure, RegistryContact, RegistryDiverged } from '#src/sharing/registry-contact.js';
import { ValkeyError } from '#src/sharing/valkey-client.js';
import { ListLog } from '../store/support.js';

const LOST = new ValkeyError('unreachable', 'no route');

void t.test('a failure is logged once a minute, and at once if it is of another kind', (t) => {
  const log = new ListLog();
  const contact = new RegistryContact(log);
  contact.recordFailure(LOST);
  contact.recordFailure(LOST);
  t.equal(log.lines.length, 1);
  t.match(log.lines[0], /; calls need only this host's copy/, 'true before calls are served, too');
  contact.recordFailure(new RegistryDiverged('It has lost changes.'));
  t.same(
    log.lines.map((line) => line.split(' ', 1)[0]),
    ['warn', 'error'],
  );
  t.end();
});

void t.test('a rejected change is told to be tried again, unless an operator must decide first', (t) => {
  const contact = new RegistryContact(new ListLog());
  contact.recordFailure(LOST);
  t.match(contact.rejection(), {
    code: 'overloaded',
    message: /\(no route\)\. Try again\.$/,
    retryAfterSeconds: 1,
  });
  contact.recordFailure(new RegistryDiverged('It has lost changes.'));
  t.match(contact.rejection(), {
    code: 'overloaded',
    message: /lost changes\..*anew\.\)\.$/,
    retryAfterSeconds: undefined,
  });
  contact.recordFollowing();
  t.match(contact.rejection().message, /this gateway is stopping/);
  t.end();
});

void t.test('a host that cannot begin without the server tells what to look at, and keeps the code', (t) => {
  t.match(joinFailure(LOST), {
    code: 'unreachable',
    message: /server of sharing .*: no route\. .*\(url, username, password\)/,
  });
  const other = new Error('Some record is damaged.');
  t.equal(joinFailure(other), other);
  t.end();
});
