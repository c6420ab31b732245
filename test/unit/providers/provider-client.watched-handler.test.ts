/** A call with a credential of the gateway: a 401 is reported, and an error's body names no credential. */
import t from 'tap';
import { WatchedHandler } from '#src/providers/provider-client.js';
import type { Credential, Credentials } from '#src/providers/provider.js';

const CREDENTIAL: Credential = { kind: 'bearer', token: 'eyJ-secret' };

function run(status: number, ...chunks: string[]): { events: string[]; rejected: number[] } {
  const events: string[] = [];
  const rejected: number[] = [];
  const credentials: Credentials = {
    of: () => CREDENTIAL,
    rejected: (position) => void rejected.push(position),
    cleaned: (_credential, text) => text.replaceAll('eyJ-secret', '…'),
  };
  const handler = new WatchedHandler(
    {
      onStart: (given) => void events.push(`start ${given}`),
      onData: (chunk) => void events.push(`data ${Buffer.from(chunk).toString()}`),
      onEnd: () => void events.push('end'),
      onError: ({ code }) => void events.push(`error ${code}`),
    },
    credentials,
    3,
    CREDENTIAL,
  );
  handler.onStart(status, () => undefined);
  for (const chunk of chunks) handler.onData(Buffer.from(chunk));
  handler.onEnd();
  return { events, rejected };
}

void t.test('a success passes chunk by chunk', (t) => {
  const { events, rejected } = run(200, 'a', 'eyJ-secret');
  t.same(events, ['start 200', 'data a', 'data eyJ-secret', 'end']);
  t.same(rejected, []);
  t.end();
});

void t.test('the body of an error is cleaned, even of a credential that is cut', (t) => {
  const { events, rejected } = run(401, 'no eyJ-', 'secret here');
  t.same(events, ['start 401', 'data no … here', 'end']);
  t.same(rejected, [3]);
  t.same(run(403, 'no').rejected, [], 'a 403 says nothing of the credential');
  t.end();
});

void t.test('of a long error body the rest is dropped', (t) => {
  const { events } = run(500, 'x'.repeat(64 * 1024), 'eyJ-', 'secret');
  t.equal(events[1], `data ${'x'.repeat(64 * 1024)}`);
  t.end();
});
