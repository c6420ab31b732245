/** Which master counts, of those that Sentinels name: the Sentinels are played. */
import t from 'tap';
import { KnownMaster, masterNamedBy, type SentinelClient } from '#src/sharing/sentinel-master.js';

type Played = 'silent' | 'gone' | 'knows none' | { readonly epoch: string | undefined };

/** Asks Sentinels that reply so, in whatever order. The port of a named master is the Sentinel's number. */
async function named(sentinels: readonly Played[], epochLast: number) {
  const asked: number[] = [];
  let open = 0;
  const clientOf = (port: number): SentinelClient => {
    const played = sentinels[port]!;
    asked.push(port);
    open += 1;
    return {
      connect: () => (played === 'gone' ? Promise.reject(new Error('gone')) : Promise.resolve()),
      ask: ([, command]) => {
        if (typeof played === 'object') {
          const epoch = played.epoch === undefined ? [] : ['config-epoch', played.epoch];
          return Promise.resolve(command === 'MASTER' ? ['name', 'main', ...epoch] : ['host', String(port)]);
        }
        if (played === 'knows none' && command === 'MASTER')
          return Promise.reject(new Error('no such master'));
        return played === 'knows none' ? Promise.resolve(null) : new Promise(() => undefined);
      },
      destroy: () => (open -= 1),
    };
  };
  const servers = sentinels.map((_, port) => ({ host: 'sentinel', port }));
  const end = await masterNamedBy({ servers, master: 'main' }, ({ port }) => clientOf(port), epochLast).catch(
    (error: unknown) => error,
  );
  return { end, asked, openCount: () => open };
}

void t.test('the first reply of the last epoch or a later one counts', async (t) => {
  for (let turn = 0; turn < 20; turn++) {
    const { end, asked } = await named([{ epoch: '5' }, { epoch: '5' }, { epoch: '6' }], 5);
    t.same(end, { host: 'host', port: asked[0], epoch: asked[0] === 2 ? 6 : 5 });
    t.equal(asked.length, 1, 'no other is asked');
  }
});

void t.test('a Sentinel that lags is asked past, and counts only if there is no other', async (t) => {
  for (let turn = 0; turn < 20; turn++) {
    const { end, openCount } = await named(['gone', { epoch: '4' }, { epoch: '5' }, 'knows none'], 5);
    t.match(end, { port: 2, epoch: 5 });
    await new Promise(setImmediate);
    t.equal(openCount(), 0);
    t.match((await named([{ epoch: '3' }, { epoch: '4' }, 'gone'], 5)).end, { port: 1, epoch: 4 });
  }
});

void t.test('a Sentinel that is silent delays the others briefly', async (t) => {
  // The pause alone keeps no process alive: else the socket of the Sentinel does.
  const alive = setInterval(() => undefined, 1_000);
  t.teardown(() => clearInterval(alive));
  const sinceMs = performance.now();
  t.match((await named(['silent', { epoch: '1' }], 0)).end, { port: 1 });
  t.match((await named([{ epoch: '1' }, 'silent'], 0)).end, { port: 0 });
  t.ok(performance.now() - sinceMs < 2_000);
});

void t.test('an epoch that is missing or no number counts as 0, and no reply rejects', async (t) => {
  for (const epoch of [undefined, '', 'x']) t.match((await named([{ epoch }], 0)).end, { epoch: 0 });
  t.match((await named(['gone', 'knows none'], 0)).end, { name: 'AggregateError' });
});

void t.test('who has found an earlier master late does not send others there', (t) => {
  const known = new KnownMaster();
  const former = { host: 'a', port: 1, epoch: 1 };
  const master = { host: 'b', port: 1, epoch: 2 };
  known.record(former);
  known.record(master);
  known.record(former);
  t.same(known.found, master);
  known.forget();
  t.equal(known.found, undefined);
  t.end();
});
