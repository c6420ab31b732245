import t from 'tap';
import { authenticate } from '#src/request/authenticate.js';
import { CallContext } from '#src/request/context.js';
import { NO_PLAN_INDEX } from '#src/registry/catalog.js';
import { digestOf, generateKey } from '#src/registry/key-digest.js';
import { openHouse, type House } from './support.js';

void t.test('a known key gives its caller', (t) => {
  const house = openHouse();
  for (const scheme of ['Bearer', 'bearer', 'BEARER']) {
    const context = new CallContext('req_1', 1);
    t.equal(authenticate(context, `${scheme} ${house.key}`, house.listener), undefined, scheme);
    t.match(context.caller, {
      key: house.keyIndex,
      account: house.account,
      planIndex: 0,
      plan: { id: 'plan' },
    });
  }
  t.end();
});

void t.test('each wrong header has its code', (t) => {
  const { listener, key } = openHouse();
  const cases: readonly (readonly [string, string])[] = [
    ['', 'missing_api_key'],
    ['Bearer', 'missing_api_key'],
    ['Bearer ', 'missing_api_key'],
    ['Bearer    ', 'missing_api_key'],
    [key, 'invalid_api_key'],
    [`Basic ${key}`, 'invalid_api_key'],
    [`Bearer${key}`, 'invalid_api_key'],
    [`Bearer  ${key}`, 'invalid_api_key'],
    [`Bearer ${key} `, 'invalid_api_key'],
    [`Bearer ${key.slice(0, -1)}`, 'invalid_api_key'],
    [`Bearer ${key}x`, 'invalid_api_key'],
    [`Bearer pk-${key.slice(3)}`, 'invalid_api_key'],
    [`Bearer ${'x'.repeat(10_000)}`, 'invalid_api_key'],
    [`Bearer ${generateKey()}`, 'invalid_api_key'],
  ];
  for (const [header, code] of cases) {
    const context = new CallContext('req_1', 1);
    const rejection = authenticate(context, header, listener);
    t.equal(rejection?.code, code, JSON.stringify(header.slice(0, 60)));
    t.notMatch(rejection?.message, key.slice(3, 20), 'the message repeats no key');
    t.equal(context.caller, undefined);
  }
  t.end();
});

void t.test('disabling a key or its account counts from the next request on', (t) => {
  const { listener, key, keyIndex, account } = openHouse();
  const code = () => authenticate(new CallContext('req_1', 1), `Bearer ${key}`, listener)?.code;
  listener.keys.setActive(keyIndex, false);
  t.equal(code(), 'key_disabled');
  listener.keys.setActive(keyIndex, true);
  t.equal(code(), undefined);
  listener.ledger.setActive(account, false);
  t.equal(code(), 'key_disabled');
  const rejection = () => authenticate(new CallContext('req_1', 1), `Bearer ${key}`, listener);
  const planIndex = listener.ledger.planIndexOf(account);
  t.match(rejection()?.message, /^The account of the API key has been disabled/);
  listener.ledger.setPlan(account, NO_PLAN_INDEX);
  t.match(rejection(), { code: 'key_disabled', message: /^The plan of this account is not in the settings/ });
  listener.ledger.setPlan(account, planIndex);
  listener.ledger.setActive(account, true);
  listener.keys.remove(keyIndex);
  t.equal(code(), 'invalid_api_key', 'a deleted key is unknown');
  t.end();
});

void t.test('an account that gets its plan back while its words are read has none yet', (t) => {
  const { listener, key, account } = openHouse();
  listener.ledger.setPlan(account, NO_PLAN_INDEX);
  t.ok(listener.ledger.isActive(account), 'as it is after the plan was read');
  const context = new CallContext('req_1', 1);
  t.match(authenticate(context, `Bearer ${key}`, listener), { message: /^The plan of this account/ });
  t.equal(context.caller, undefined);
  t.end();
});

void t.test('an expired key is refused from its second on, and says so', (t) => {
  const { listener, key, keyIndex, clock } = openHouse();
  const ask = () => authenticate(new CallContext('req_1', 1), `Bearer ${key}`, listener);
  listener.keys.setExpiry(keyIndex, Math.floor(clock.wallMs() / 1_000) + 1);
  clock.nowMs = 499;
  t.equal(ask(), undefined);
  clock.nowMs = 500;
  t.match(ask(), { code: 'key_disabled', message: /has expired/ });
  listener.keys.setActive(keyIndex, false);
  t.match(ask(), { code: 'key_disabled', message: /has been disabled/ }, 'what can be undone is told first');
  t.end();
});

void t.test('each second of use is noted once, and no use that was refused', (t) => {
  const { listener, key, keyIndex, account, clock } = openHouse();
  const ask = () => authenticate(new CallContext('req_1', 1), `Bearer ${key}`, listener);
  const used = () => [listener.keys.lastUsedSecondsOf(keyIndex), dirtyKeys(listener)];
  const second = Math.floor(clock.wallMs() / 1_000);
  t.same(used(), [undefined, []]);
  listener.ledger.setActive(account, false);
  ask();
  t.same(used(), [undefined, []], 'the account is disabled');
  listener.ledger.setActive(account, true);
  ask();
  t.same(used(), [second, [keyIndex]]);
  ask();
  t.same(used(), [second, []], 'the same second');
  clock.nowMs += 1_000;
  ask();
  t.same(used(), [second + 1, [keyIndex]]);
  listener.keys.setActive(keyIndex, false);
  clock.nowMs += 1_000;
  ask();
  t.same(used(), [second + 1, []], 'the key is disabled');
  t.end();
});

void t.test('a key that has limits of its own is known by it', (t) => {
  const { listener, key, keyIndex, account } = openHouse();
  const isLimited = () => {
    const context = new CallContext('req_1', 1);
    authenticate(context, `Bearer ${key}`, listener);
    return context.caller?.isLimited;
  };
  t.equal(isLimited(), false);
  listener.keys.remove(keyIndex);
  listener.ledger.keys.open(keyIndex, { requestsPerMinute: 5, callsPerDay: undefined });
  listener.keys.insert(keyIndex, digestOf(key), account, true, { isLimited: true });
  t.equal(isLimited(), true);
  t.end();
});

function dirtyKeys(listener: House['listener']): number[] {
  const keys: number[] = [];
  listener.ledger.keys.dirty.drain((key) => keys.push(key), 32);
  return keys;
}
