/**
 * The certificate's settings: files that cannot serve are refused, each by name; a change of their content is
 * one of the settings.
 */
import { createPrivateKey } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { TlsSettings } from '#src/config/listen-schema.js';
import { readTlsFiles } from '#src/config/setting-files.js';
import { differenceOf } from '#src/config/settings-in-force.js';
import { selfSigned } from '../../fixtures/upstream-certificate.js';
import { SOUND_YAML, worldOf, type World } from './support.js';

const [one, other] = [selfSigned(), selfSigned()];
const skip = one === undefined || other === undefined ? 'openssl is not installed' : false;
const DAY_MS = 86_400_000;

function worldWith(t: Test, files: Readonly<Record<string, string>>, more = ''): World {
  return worldOf(t, {
    'tollgate.yaml': `${SOUND_YAML}\nlisten: { tls: { cert_file: cert.pem, key_file: key.pem ${more} } }\n`,
    ...files,
  });
}

void t.test('files that belong together', { skip }, (t) => {
  const world = worldWith(t, { 'cert.pem': one!.certificate, 'key.pem': one!.key });
  const before = world.load().settings;
  t.match(before.listen.tls, {
    cert_file: join(world.folder, 'cert.pem'),
    key_file: join(world.folder, 'key.pem'),
    digest: /^[0-9a-f]{64}$/,
  });
  writeFileSync(join(world.folder, 'cert.pem'), other!.certificate);
  writeFileSync(join(world.folder, 'key.pem'), other!.key);
  t.same(differenceOf(before, world.load().settings), { applied: ['listen.tls'], restartNeeded: [] });
  writeFileSync(join(world.folder, 'key.pem'), one!.key);
  t.match(
    world.faults().join('\n'),
    /listen\.tls\.key_file: .*key\.pem: is not the key of the certificate in .*cert\.pem/,
  );
  t.end();
});

void t.test('without TLS there is nothing to read', (t) => {
  t.equal(worldOf(t, { 'tollgate.yaml': SOUND_YAML }).load().settings.listen.tls, undefined);
  t.end();
});

void t.test('a command that serves nobody does without the files', (t) => {
  t.doesNotThrow(() => worldWith(t, {}).load({ secrets: false }));
  const yaml = SOUND_YAML.replace('"echo:"', '"https://h/v1", ca_file: private.pem');
  const world = worldOf(t, { 'tollgate.yaml': yaml });
  t.match(world.faults(), [/upstreams\[0\]\.ca_file: cannot be read: ENOENT/]);
  const [upstream] = world.load({ secrets: false }).settings.models[0]!.upstreams;
  t.equal(upstream!.ca_file, join(world.folder, 'private.pem'));
  t.end();
});

void t.test('what is wrong is named', { skip }, (t) => {
  const { certificate, key } = one!;
  const faultOf = (files: Readonly<Record<string, string>>): string =>
    worldWith(t, files).faults().join('\n');
  t.match(faultOf({ 'key.pem': key }), /tls\.cert_file: cannot be read: ENOENT.*cert\.pem/);
  t.match(faultOf({ 'cert.pem': certificate }), /tls\.key_file: cannot be read: ENOENT.*key\.pem/);
  t.match(faultOf({ 'cert.pem': key, 'key.pem': key }), /cert\.pem: holds no certificate/);
  t.match(
    faultOf({ 'cert.pem': certificate, 'key.pem': certificate }),
    /key\.pem: no private key in PEM form can be read/,
  );
  t.match(
    faultOf({ 'cert.pem': certificate, 'key.pem': 'x'.repeat(262_145) }),
    /key\.pem: longer than 262144 bytes/,
  );
  t.end();
});

void t.test('a key with a passphrase', { skip }, (t) => {
  const encrypted = createPrivateKey(one!.key).export({
    type: 'pkcs8',
    format: 'pem',
    cipher: 'aes-256-cbc',
    passphrase: 'open sesame',
  }) as string;
  const files = { 'cert.pem': one!.certificate, 'key.pem': encrypted };
  const world = worldWith(t, files, ', passphrase: "${PHRASE}"');
  t.equal(world.load({}, { PHRASE: 'open sesame' }).settings.listen.tls?.passphrase, 'open sesame');
  t.match(world.faults({}, { PHRASE: 'wrong' }).join('\n'), /key\.pem: no private key/);
  t.match(worldWith(t, files).faults().join('\n'), /key\.pem: no private key/);
  t.match(worldWith(t, files, ', passphrase: inline').faults().join('\n'), /secret written inline/);
  t.end();
});

void t.test('a certificate is refused before its time and after', { skip }, (t) => {
  const world = worldWith(t, { 'cert.pem': one!.certificate, 'key.pem': one!.key });
  const faultAt = (nowMs: number): string | undefined => {
    const tls: TlsSettings = { cert_file: 'cert.pem', key_file: 'key.pem' };
    const faults: string[] = [];
    readTlsFiles(tls, world.folder, nowMs, (_, text) => void faults.push(text));
    t.equal(tls.digest === undefined, faults.length === 1);
    return faults[0];
  };
  t.equal(faultAt(Date.now()), undefined);
  t.match(faultAt(Date.now() + 3 * DAY_MS), /cert\.pem: the certificate has expired, on /);
  t.match(faultAt(Date.now() - DAY_MS), /cert\.pem: the certificate is not valid before /);
  t.end();
});
