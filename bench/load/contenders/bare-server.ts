/**
 * A bare µWebSockets.js handler in a process of its own: `POST /401` is answered with 401 and a constant
 * body, whatever was sent. Nothing is looked up, read or counted.
 */
import uws from 'uWebSockets.js';
import { REJECTION_STATUSES } from '../scenarios/refusals.js';

const BODY = Buffer.from(
  JSON.stringify({
    error: { message: 'refused', type: 'invalid_request_error', param: null, code: 'refused' },
  }),
);

const app = uws.App({});
for (const status of REJECTION_STATUSES) {
  app.post(`/${status}`, (response) => {
    response.cork(() => {
      response.writeStatus(`${status} Refused`).writeHeader('content-type', 'application/json').end(BODY);
    });
  });
}
app.listen('127.0.0.1', 0, (socket) => {
  if (socket === false) throw new Error('no port could be had on 127.0.0.1');
  process.stdout.write(`listening on ${uws.us_socket_local_port(socket)}\n`);
});
