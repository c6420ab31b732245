/** What a worker does with credentials: which it uses, what it reports, what it cleans away. */
import t from 'tap';
import type { Credential } from '#src/providers/provider.js';
import { CredentialTable } from '#src/upstream/credential-table.js';

const bearer = (token: string): Credential => ({ kind: 'bearer', token });
const ONE = bearer('ya29.first-token-0123456789');
const TWO = bearer('ya29.second-token-0123456789');
const AWS: Credential = {
  kind: 'aws',
  accessKeyId: 'AKIDEXAMPLE0001',
  secretAccessKey: 'wJalrXUtnFEMI/K7MDENG',
  sessionToken: undefined,
};

function world() {
  const rejected: [number, number][] = [];
  const table = new CredentialTable(
    [{ position: 1, generation: 1, credential: ONE }],
    (position, generation) => rejected.push([position, generation]),
  );
  return { rejected, table };
}

void t.test('the current one, and who had none before', (t) => {
  const { table } = world();
  t.equal(table.credentialAt(0), undefined);
  t.equal(table.credentialAt(1), ONE);
  t.same(table.replace([{ position: 1, generation: 2, credential: TWO }]), [], 'a renewal');
  t.equal(table.credentialAt(1), TWO);
  t.same(table.replace([{ position: 1, generation: 3, credential: undefined }]), []);
  t.equal(table.credentialAt(1), undefined, 'it has expired');
  t.same(table.replace([{ position: 1, generation: 4, credential: ONE }]), [1]);
  t.end();
});

void t.test('each generation is reported once, and not by calls that began before it', (t) => {
  const { rejected, table } = world();
  for (let call = 0; call < 100; call += 1) table.rejected(1, ONE);
  t.same(rejected, [[1, 1]]);
  table.replace([{ position: 1, generation: 2, credential: TWO }]);
  table.rejected(1, ONE);
  table.rejected(0, ONE);
  t.equal(rejected.length, 1);
  table.rejected(1, TWO);
  t.same(rejected[1], [1, 2]);
  // A reload removes its upstream, a later one adds it again: the keeper counts from 1.
  table.replace([{ position: 1, generation: 2, credential: undefined }]);
  table.replace([{ position: 1, generation: 2, credential: ONE }]);
  table.rejected(1, ONE);
  t.same(rejected[2], [1, 2]);
  t.end();
});

void t.test('a token is cleaned out, also one that has been replaced', (t) => {
  const { table } = world();
  table.replace([{ position: 1, generation: 2, credential: TWO }]);
  t.equal(table.withoutSecrets(ONE, 'bad token ya29.first-token-0123456789!'), 'bad token ***!');
  t.notMatch(table.withoutSecrets(AWS, 'key AKIDEXAMPLE0001 wJalrXUtnFEMI/K7MDENG'), /AKID|wJal/);
  const encoded = Buffer.from('ya29.second-token-0123456789').toString('base64');
  t.match(table.withoutSecrets(TWO, `bad ${encoded}`), /is not shown/);
  t.equal(table.withoutSecrets(ONE, 'quota exceeded'), 'quota exceeded');
  t.end();
});
