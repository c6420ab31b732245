/** A call with a credential of the gateway: a 401 is reported, and an error's body names no credential. */
import t from 'tap';
import { RenewedCredentialHandler } from '#src/providers/renewed-credential-handler.js';
import type { Credential, Credentials } from '#src/providers/provider.js';

const CREDENTIAL: Credential = { kind: 'bearer', token: 'eyJ-secret' };

interface Run {
  readonly events: string[];
  readonly rejected: number[];
}

const run = (status: number, ...chunks: string[]): Run => runTo((handler) => handler.onEnd(), status, chunks);

function runTo(
  end: (handler: RenewedCredentialHandler) => void,
  status: number,
  chunks: readonly string[],
): Run {
  const events: string[] = [];
  const rejected: number[] = [];
  const credentials: Credentials = {
    credentialAt: () => CREDENTIAL,
    rejected: (position) => void rejected.push(position),
    withoutSecrets: (_credential, text) => text.replaceAll('eyJ-secret', '…'),
  };
  const handler = new RenewedCredentialHandler(
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
  handler.setHttpCall({
    sent: true,
    isHeldUp: false,
    pause: () => undefined,
    resume: () => undefined,
    drain: () => undefined,
    abort: () => void events.push('abort'),
  });
  handler.onStart(status, () => undefined);
  for (const chunk of chunks) handler.onData(Buffer.from(chunk));
  end(handler);
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

void t.test('of a long error body the rest is not read, and its sender is not waited for', (t) => {
  const { events } = run(500, 'x'.repeat(64 * 1024), 'eyJ-', 'secret');
  t.same(events, ['start 500', 'abort', `data ${'x'.repeat(1_000)}`, 'end']);
  t.end();
});

void t.test('what has come of an error before its connection broke is handed on, cleaned', (t) => {
  const fault = { code: 'ECONNRESET', message: '', repeatable: false };
  const broken = (status: number, ...chunks: string[]): string[] =>
    runTo((handler) => handler.onError(fault), status, chunks).events;
  t.same(broken(400, 'no eyJ-', 'secret here'), ['start 400', 'data no … here', 'error ECONNRESET']);
  t.same(broken(400), ['start 400', 'error ECONNRESET']);
  t.same(broken(200, 'a'), ['start 200', 'data a', 'error ECONNRESET']);
  t.end();
});
