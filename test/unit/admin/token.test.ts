import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { findAdminToken, obtainAdminToken, TokenCheck, tokenPath } from '#src/admin/token.js';

void t.test('a token is made once, for its owner alone', (t) => {
  const path = t.testdir();
  t.equal(findAdminToken(path, {}), undefined);
  const token = obtainAdminToken(path, {});
  t.match(token, /^[A-Za-z0-9_-]{43}$/);
  t.equal(statSync(tokenPath(path)).mode & 0o777, 0o600);
  t.same(readdirSync(path), ['admin-token'], 'no temporary file is left');
  t.equal(readFileSync(tokenPath(path), 'utf8'), `${token}\n`);
  t.equal(obtainAdminToken(path, {}), token);
  t.equal(findAdminToken(path, {}), token);
  t.not(obtainAdminToken(t.testdir(), {}), token);
  t.end();
});

void t.test('of two processes that start together, the second takes the token of the first', (t) => {
  const path = t.testdir();
  const theirToken = 'x'.repeat(43);
  const pid = Object.getOwnPropertyDescriptor(process, 'pid')!;
  t.teardown(() => Object.defineProperty(process, 'pid', pid));
  // The pid is read after the look for a file and before a file is made: the other is quicker just then.
  Object.defineProperty(process, 'pid', {
    configurable: true,
    get: () => {
      writeFileSync(tokenPath(path), `${theirToken}\n`);
      return 1;
    },
  });
  t.equal(obtainAdminToken(path, {}), theirToken);
  t.equal(findAdminToken(path, {}), theirToken);
  t.same(readdirSync(path), ['admin-token']);
  t.end();
});

void t.test('the environment’s token comes first and is not written down', (t) => {
  const path = t.testdir();
  const environment = { TOLLGATE_ADMIN_TOKEN: 'x'.repeat(16) };
  t.equal(obtainAdminToken(path, environment), 'x'.repeat(16));
  t.same(readdirSync(path), []);
  const own = obtainAdminToken(path, { TOLLGATE_ADMIN_TOKEN: '' });
  t.equal(findAdminToken(path, {}), own, 'an empty one is none');
  t.equal(findAdminToken(path, environment), 'x'.repeat(16));
  t.end();
});

void t.test('a weak token is refused, and not told', (t) => {
  for (const weak of [
    'short',
    'x'.repeat(15),
    'x'.repeat(257),
    'sixteen chars with spaces',
    'ümlaut-and-so-on-1',
  ]) {
    t.throws(() => findAdminToken('nowhere', { TOLLGATE_ADMIN_TOKEN: weak }), {
      message: /^TOLLGATE_ADMIN_TOKEN is no token: wanted are 16 to 256/,
    });
    const path = t.testdir();
    writeFileSync(tokenPath(path), `${weak}\n`);
    t.throws(() => obtainAdminToken(path, {}), { message: `${tokenPath(path)} holds no token` });
    t.throws(() => findAdminToken(path, {}), { message: /^(?!.*short).*Remove the file/ });
  }
  const path = t.testdir();
  mkdirSync(tokenPath(path));
  t.throws(
    () => findAdminToken(path, {}),
    { code: 'no_token', message: `${tokenPath(path)} cannot be read: EISDIR` },
    'nor is another fault taken for no token',
  );
  t.end();
});

void t.test('the token of another user', { skip: process.getuid?.() !== 0 && 'needs root' }, (t) => {
  const path = t.testdir();
  chmodSync(path, 0o755);
  writeFileSync(tokenPath(path), `${'x'.repeat(16)}\n`, { mode: 0o600 });
  const asNobody = (work: () => unknown) => () => {
    process.seteuid!(65_534);
    try {
      work();
    } finally {
      process.seteuid!(0);
    }
  };
  const message = (owner: string): RegExp =>
    new RegExp(
      `^${tokenPath(path)} cannot be read: permission denied\\. Only ${owner} may .* TOLLGATE_ADMIN_TOKEN`,
    );
  for (const work of [() => findAdminToken(path, {}), () => obtainAdminToken(path, {})])
    t.throws(asNobody(work), { code: 'no_token', message: message('user 0, who owns it,') });
  chmodSync(path, 0o700);
  t.throws(
    asNobody(() => findAdminToken(path, {})),
    { message: message('its owner') },
  );
  t.end();
});

void t.test('an operator’s token is for commands, and not for the gateway', (t) => {
  const token = `tgop_${'x'.repeat(43)}`;
  const environment = { TOLLGATE_ADMIN_TOKEN: token };
  const path = t.testdir();
  t.equal(findAdminToken(path, environment), token);
  const refusal = {
    code: 'no_token',
    message: /^(?!.*xxx).*an operator's token.*without the variable, or set/,
  };
  t.throws(() => obtainAdminToken(path, environment), refusal);
  t.same(readdirSync(path), [], 'nor is another made');
  writeFileSync(tokenPath(path), `${token}\n`);
  t.throws(() => obtainAdminToken(path, {}), refusal, 'from the file neither');
  const own = { TOLLGATE_ADMIN_TOKEN: `${token}x` };
  t.equal(obtainAdminToken(path, own), `${token}x`, 'one that no operator can have is one like others');
  t.end();
});

void t.test('only the token itself is accepted', (t) => {
  const token = 'operator-token-0123456789';
  const check = new TokenCheck(token);
  t.equal(check.accepts(token), true);
  for (let at = 0; at < token.length; at++) {
    t.equal(check.accepts(`${token.slice(0, at)}#${token.slice(at + 1)}`), false);
    t.equal(check.accepts(token.slice(0, at)), false);
  }
  t.equal(check.accepts(`${token} `), false);
  t.end();
});
