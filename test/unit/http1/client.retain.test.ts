/** Connections to upstreams that a reload removed: closed when their calls have ended, and no call is cut. */
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { SystemClock } from '#src/core/clock.js';
import type { HttpHandler } from '#src/http1/http-client.js';
import type { UpstreamTarget } from '#src/upstream/target.js';
import { Http1Client } from '#src/http1/client.js';
import { eventually } from '../../support/gateway.js';
import { startUpstream, targetOf, type Script } from '../../fixtures/upstream-server.js';

async function worldOf(t: Test, script: Script) {
  const upstreams = [await startUpstream(script), await startUpstream(script)] as const;
  const client = new Http1Client({ clock: new SystemClock(), version: '1' });
  t.teardown(async () => {
    await client.close();
    await Promise.all(upstreams.map((upstream) => upstream.close()));
  });
  /** The text that came, or the code of the fault; `started` at the first byte. */
  const call = (target: UpstreamTarget) => {
    let text = '';
    let start: () => void = () => undefined;
    const started = new Promise<void>((resolve) => (start = resolve));
    const ended = new Promise<string>((resolve) => {
      const handler: HttpHandler = {
        onStart: () => start(),
        onData: (chunk) => (text += Buffer.from(chunk).toString()),
        onEnd: () => resolve(text),
        onError: ({ code }) => resolve(code),
      };
      client.start(target, '{}', 'r', handler);
    });
    return { started, ended };
  };
  return { upstreams, client, call };
}

void t.test('an idle connection is closed at once, one that stays is used again', async (t) => {
  const { upstreams, client, call } = await worldOf(t, (_, response) => response.end('ok'));
  const [gone, kept] = upstreams;
  const target = targetOf(kept.origin);
  await Promise.all([call(targetOf(gone.origin)).ended, call(target).ended]);
  t.same([gone.sockets.size, kept.sockets.size], [1, 1]);
  const rekeyed = { ...target, key: 'sk-other' };
  client.retain([rekeyed]);
  await eventually('closed', () => (gone.sockets.size === 0 ? true : undefined));
  t.equal(await call(rekeyed).ended, 'ok');
  t.equal(kept.connections, 1, 'the connection outlived the change of the key');
  t.same(
    kept.requests.map(({ headers }) => headers.authorization),
    ['Bearer sk-provider-secret', 'Bearer sk-other'],
  );
});

void t.test('a stream that runs goes on to its end, then its connection is closed', async (t) => {
  let finish: () => void = () => undefined;
  const { upstreams, client, call } = await worldOf(t, (_, response) => {
    response.write('begin ');
    finish = () => response.end('end');
  });
  const [gone] = upstreams;
  const target = targetOf(gone.origin);
  const { started, ended } = call(target);
  await started;
  client.retain([]);
  t.equal(gone.sockets.size, 1, 'not cut');
  const [socket] = gone.sockets;
  const closed = once(socket!, 'close');
  finish();
  t.equal(await ended, 'begin end');
  await closed;

  const late = call(target);
  await late.started;
  finish();
  t.equal(await late.ended, 'begin end', 'a late call of a removed target is served all the same');
  client.retain([]);
  await eventually('its connection is closed too', () => (gone.sockets.size === 0 ? true : undefined));
});

void t.test('closing ends calls on connections that were already to be closed', async (t) => {
  const { upstreams, client, call } = await worldOf(t, (_, response) => response.write('begin'));
  const { started, ended } = call(targetOf(upstreams[0].origin));
  await started;
  client.retain([]);
  await client.close();
  t.equal(await ended, 'HTTP1_CLIENT_CLOSED');
});
