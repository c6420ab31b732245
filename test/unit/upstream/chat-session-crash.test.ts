/**
 * A bug at the start of a call, or within a callback of a timer, ends that call, and not the worker with all
 * of its calls.
 */
import t from 'tap';
import { DOOR_INDEX } from '#src/core/door-names.js';
import type { Usage } from '#src/core/token-counts.js';
import { chunkOf, DONE, sse, USAGE, usageEvent, type Script } from '../../fixtures/upstream-server.js';
import { COUNTED, STREAM, turn, world } from '../../fixtures/upstream-world.js';

/** A stream that goes no further than `text`. */
const beginning =
  (text: string): Script =>
  (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(text);
  };

for (const [name, text, leaves] of [
  ['usage that is late', STREAM + DONE, false],
  ['a client that leaves', sse(chunkOf('a')) + sse(usageEvent(USAGE)), true],
] as const) {
  void t.test(`a bug at the end of a call: ${name}`, async (t) => {
    const { call, routes, log } = await world(t, [beginning(text)]);
    const { session, downstream } = call({ stream: true });
    while (downstream.text === '') await turn();
    routes.routeOf = () => {
      throw new Error('a bug');
    };
    if (leaves) session.onCancel();
    await downstream.ended;
    t.equal(downstream.error?.code, 'internal_error');
    t.equal(downstream.endings, 1);
    t.match(log.lines, [{ message: 'a call failed inside of the gateway', fields: { cause: /a bug/ } }]);
  });
}

for (const [name, changes] of [
  ['a call', {}],
  ['a call that counts', { door: DOOR_INDEX.count_tokens }],
] as const) {
  void t.test(`a bug at the start of ${name}`, async (t) => {
    const { call, routes, log } = await world(t, [beginning(STREAM + DONE)]);
    const failing = (): never => {
      throw new Error('a bug');
    };
    routes.routeOf = failing;
    routes.balancerOf = failing;
    const { session, downstream } = call(changes);
    await downstream.ended;
    t.equal(downstream.error?.code, 'internal_error');
    t.equal(downstream.endings, 1);
    session.onCredit();
    session.onCancel();
    t.equal(downstream.endings, 1);
    t.match(log.lines, [{ message: 'a call failed inside of the gateway', fields: { cause: /a bug/ } }]);
  });
}

void t.test('a bug while the tokens are counted: the count that comes later changes nothing', async (t) => {
  const { promise, resolve } = deferred<Usage>();
  const { call, counts } = await world(t, [beginning(STREAM + DONE)], () => promise);
  const { session, downstream } = call({ stream: true });
  while (counts.length === 0) await turn();
  session.crash(new Error('a bug'));
  resolve(COUNTED);
  await turn();
  t.equal(downstream.error?.code, 'internal_error');
  t.equal(downstream.endings, 1);
});

function deferred<Value>(): { promise: Promise<Value>; resolve: (value: Value) => void } {
  let resolve: (value: Value) => void = () => undefined;
  const promise = new Promise<Value>((resolvePromise) => (resolve = resolvePromise));
  return { promise, resolve };
}
