/**
 * Requests whose heads are longer than µWS takes by itself, in one segment and in two.
 */
import t from 'tap';
import { setTimeout as sleep } from 'node:timers/promises';
import { startGateway } from '../support/gateway.js';
import { RawConnection } from '../support/raw-connection.js';

const HEADER_BYTES = 12 * 1024;
/** Time for the first part to be read by itself. */
const BETWEEN_MS = 200;

void t.test('a head of 12 KB is read', async (t) => {
  const gateway = await startGateway(t);
  const head = `GET /v1/models HTTP/1.1\r\nhost: test\r\ncookie: ${'x'.repeat(HEADER_BYTES)}\r\n\r\n`;
  const connection = await RawConnection.open(gateway.port);
  connection.send(head);
  const whole = await connection.answer();
  t.equal(whole.status, 401, 'in one segment');
  t.match(whole.body, '"missing_api_key"');
  connection.send(head.slice(0, 6_000));
  await sleep(BETWEEN_MS);
  connection.send(head.slice(6_000));
  const cut = await connection.answer();
  t.equal(cut.status, 401, 'in two');
  connection.close();
  t.equal(await gateway.stop(), 0);
});
