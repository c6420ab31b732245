import t from 'tap';
import { authenticate } from '#src/pipeline/authenticate.js';
import { CallContext } from '#src/pipeline/context.js';
import { generateKey } from '#src/registry/key-digest.js';
import { openHouse } from './support.js';

void t.test('a known key gives its caller', (t) => {
  const house = openHouse();
  for (const scheme of ['Bearer', 'bearer', 'BEARER']) {
    const context = new CallContext('req_1', 1);
    t.equal(authenticate(context, `${scheme} ${house.key}`, house.parts), undefined, scheme);
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
  const { parts, key } = openHouse();
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
    const refusal = authenticate(context, header, parts);
    t.equal(refusal?.code, code, JSON.stringify(header.slice(0, 60)));
    t.notMatch(refusal?.message, key.slice(3, 20), 'the message repeats no key');
    t.equal(context.caller, undefined);
  }
  t.end();
});

void t.test('disabling a key or its account counts from the next request on', (t) => {
  const { parts, key, keyIndex, account } = openHouse();
  const code = () => authenticate(new CallContext('req_1', 1), `Bearer ${key}`, parts)?.code;
  parts.keys.setActive(keyIndex, false);
  t.equal(code(), 'key_disabled');
  parts.keys.setActive(keyIndex, true);
  t.equal(code(), undefined);
  parts.ledger.setActive(account, false);
  t.equal(code(), 'key_disabled');
  parts.ledger.setActive(account, true);
  parts.keys.remove(keyIndex);
  t.equal(code(), 'invalid_api_key', 'a deleted key is unknown');
  t.end();
});
