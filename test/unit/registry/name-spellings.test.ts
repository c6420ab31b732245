/** A name in composed characters (NFC) and in decomposed ones (NFD) is one name; older records stay. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { openHouse, TESTER } from '../store/support.js';

const NFC = 'Zoë';
const NFD = NFC.normalize('NFD');
const credit = asPicoUnits(0n);

void t.test('accounts, groups and keys: one name in both spellings', (t) => {
  const { registry } = openHouse(t.testdir());
  const { accounts, groups, keys } = registry;
  const create = () => accounts.create({ name: NFD, planId: 'free', credit });
  const { record } = registry.runAs(TESTER, create).result;
  t.equal(record.name, NFC, 'is stored composed');
  groups.create({ name: NFD });
  keys.create({ account: NFD, name: NFD });
  for (const name of [NFC, NFD]) {
    const refused = { code: 'invalid_parameters', message: /^name must be unique/ };
    t.throws(() => accounts.create({ name, planId: 'free', credit }), refused);
    t.throws(() => groups.create({ name }), refused);
    t.throws(() => keys.create({ account: record.id, name }), refused);
    t.equal(accounts.find(name).record.id, record.id);
    t.equal(groups.find(name).record.name, NFC);
    t.equal(keys.find(name).record.name, NFC);
    t.same(
      accounts.search({ text: name.slice(1) }, 0, 9).items.map((found) => found.record.id),
      [record.id],
      'is found by a part',
    );
    const changes = registry.changes.page({ target: name }, undefined, 9);
    t.equal(changes.items.length, 1, 'and so is its change');
  }
  t.end();
});

void t.test('records from before are found by their own spelling, and by the composed one', (t) => {
  const { registry, store } = openHouse(t.testdir());
  const { accounts } = registry;
  const composed = accounts.create({ name: NFC, planId: 'free', credit }).record;
  const other = accounts.create({ name: 'other', planId: 'free', credit }).record;
  store.commit(() => store.putAccount({ ...other, name: NFD }));
  t.equal(accounts.find(NFC).record.id, composed.id);
  t.equal(accounts.find(NFD).record.id, other.id);
  const third = accounts.create({ name: 'third', planId: 'free', credit }).record;
  const loneNfd = 'é'.normalize('NFD');
  store.commit(() => store.putAccount({ ...third, name: loneNfd }));
  t.equal(accounts.find('é').record.id, third.id);
  t.throws(() => accounts.create({ name: 'é', planId: 'free', credit }), /must be unique/);
  t.end();
});
