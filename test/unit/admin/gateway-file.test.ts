import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { chmodSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import t from 'tap';
import type { Test } from 'tap';
import {
  adminOrigin,
  findGateway,
  gatewayFilePath,
  readGatewayFile,
  removeGatewayFile,
  writeGatewayFile,
} from '#src/admin/gateway-file.js';

const address = { pid: 42, adminHost: '127.0.0.1', adminPort: 8081 };

void t.test('written whole, read, removed by its writer alone', (t) => {
  const path = t.testdir();
  t.equal(readGatewayFile(path), undefined);
  removeGatewayFile(path, 42);
  writeGatewayFile(path, { ...address, adminPort: 1 });
  writeGatewayFile(path, address);
  t.same(readGatewayFile(path), address);
  t.same(readdirSync(path), ['gateway.json'], 'no temporary file is left');
  t.equal(statSync(gatewayFilePath(path)).mode & 0o777, 0o600);
  removeGatewayFile(path, 43);
  t.same(readGatewayFile(path), address, 'another process’s');
  removeGatewayFile(path, 42);
  t.equal(readGatewayFile(path), undefined);
  t.end();
});

void t.test('what cannot be understood is none', (t) => {
  const path = t.testdir();
  for (const text of ['', '{', 'null', '{"pid":42}', JSON.stringify({ ...address, adminPort: 0 })]) {
    writeFileSync(gatewayFilePath(path), text);
    t.equal(readGatewayFile(path), undefined, text);
  }
  t.end();
});

void t.test('an origin that this host reaches', (t) => {
  const origins = {
    '127.0.0.1': '127.0.0.1',
    '0.0.0.0': '127.0.0.1',
    '::': '[::1]',
    '::1': '[::1]',
    box: 'box',
  };
  for (const [adminHost, host] of Object.entries(origins)) {
    t.equal(adminOrigin({ ...address, adminHost }), `http://${host}:8081`);
  }
  t.end();
});

/** A server that responses `/healthz` with `text`; a data folder whose file names it as process 42. */
async function healthAnswering(t: Test, text: string): Promise<string> {
  const server = createServer((_, response) => response.end(text));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const path = t.testdir();
  writeGatewayFile(path, { ...address, adminPort: (server.address() as AddressInfo).port });
  return path;
}

void t.test('a gateway is found only where the process that wrote the file answers', async (t) => {
  t.equal(await findGateway(t.testdir()), undefined, 'no file');
  const found = await healthAnswering(t, '{"status":"ok","pid":42}');
  t.match(await findGateway(found), { pid: 42 });
  for (const text of ['{"status":"ok","pid":43}', '{"status":"ok"}', 'hello', '']) {
    t.equal(await findGateway(await healthAnswering(t, text)), undefined, text);
  }
  const path = t.testdir();
  writeGatewayFile(path, { ...address, adminPort: 1 });
  t.equal(await findGateway(path), undefined, 'nobody listens');
});

void t.test(
  'in a folder of another user: that it cannot be read, and not that no gateway runs',
  async (t) => {
    const path = t.testdir();
    writeGatewayFile(path, address);
    chmodSync(path, 0o000);
    // root may read every folder.
    const isRoot = process.geteuid!() === 0;
    if (isRoot) process.seteuid!(65_534);
    const found = findGateway(path);
    if (isRoot) process.seteuid!(0);
    chmodSync(path, 0o700);
    await t.rejects(found, {
      code: 'EACCES',
      message: /gateway\.json cannot be read: permission denied\. Run .* as the owner/,
    });
  },
);
