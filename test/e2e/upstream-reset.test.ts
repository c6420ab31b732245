/**
 * An operator who knows that an upstream is well again does not wait for its pause: `upstreams reset` ends it
 * in all workers and processes.
 */
import t, { type Test } from 'tap';
import { startBed, type Bed } from '../support/bed.js';
import { runCommand } from '../support/command.js';
import { eventually, HIDDEN_MODEL, knownEverywhere, TEST_MODEL } from '../support/gateway.js';
import { steered } from '../support/mock.js';

interface StatusView {
  readonly processes: readonly { readonly ready: boolean }[];
  readonly upstreams: readonly { readonly model: string; readonly breaker: string }[];
}

const statusOf = async ({ gateway }: Bed): Promise<StatusView> =>
  (await gateway.admin.send('GET', '/admin/v1/status')).json() as StatusView;

const breakerOf = async (bed: Bed): Promise<string> => {
  const { upstreams } = await statusOf(bed);
  return upstreams.find(({ model }) => model === TEST_MODEL)!.breaker;
};

async function keyOf(t: Test, settings: object): Promise<Bed & { readonly key: string }> {
  const bed = await startBed(t, { ...settings });
  const { key } = await bed.gateway.admin.customer();
  await knownEverywhere(bed.gateway, key);
  return { ...bed, key };
}

void t.test(
  'a breaker that is open is closed by the admin interface, and the next call is served',
  async (t) => {
    const bed = await keyOf(t, { upstream: { breaker_failures: 1 } });
    const { gateway, key } = bed;
    const reset = (body?: object) => gateway.admin.send('POST', '/admin/v1/upstreams/reset', body);
    // Its first pause is of two seconds: on a busy machine it may be over before the second call.
    await eventually('a call that is refused', async () => {
      await gateway.chat(key, steered('status=500'));
      return (await gateway.chat(key, 'Hello')).status === 200 ? undefined : true;
    });
    t.equal(await breakerOf(bed), 'open');
    const answer = await reset({ model: TEST_MODEL });
    t.equal(answer.status, 200, answer.body);
    t.same(answer.json(), { models: [TEST_MODEL] });
    t.equal((await gateway.chat(key, 'Hello')).status, 200);
    t.equal(await breakerOf(bed), 'closed');

    const unknown = await reset({ model: 'no-such' });
    t.equal(unknown.status, 400);
    t.match(unknown.body, /no-such/);
    t.same((await reset({})).json(), { models: [TEST_MODEL, HIDDEN_MODEL] });
  },
);

/** Connections that the kernel deals out to both processes, but for once in 10^11 times. */
const DEALT_OUT = 40;
const SLOW = steered('first_byte_ms=300');
/** A listener measures at least once within it how busy it is. */
const NONE_SERVED_MS = 2_000;

void t.test('a pause of a minute ends at the command in all workers of all processes', async (t) => {
  const bed = await keyOf(t, { processes: 2, workers: 2, upstream: { park_max_ms: 60_000 } });
  const { gateway, key } = bed;
  await eventually('both processes', async () => {
    const { processes } = await statusOf(bed);
    return processes.filter(({ ready }) => ready).length === 2 ? true : undefined;
  });
  const all = async (prompt: string) => {
    const answers = await Promise.all(Array.from({ length: DEALT_OUT }, () => gateway.chat(key, prompt)));
    return answers.filter(({ status }) => status === 200).length;
  };
  let servedMs = performance.now();
  await eventually('a pause in all threads that call upstreams', async () => {
    // Slow, so that each process has several in flight at a time and gives them to both of its workers.
    await all(steered('status=429&retry_after=60&first_byte_ms=300'));
    if ((await all(SLOW)) > 0) servedMs = performance.now();
    // For a while, because a listener that has time calls upstreams itself: it may have had none of these.
    return performance.now() - servedMs > NONE_SERVED_MS ? true : undefined;
  });
  t.equal(await all(SLOW), 0);
  const other = await runCommand(gateway.folder, ['upstreams', 'reset', HIDDEN_MODEL]);
  t.equal(other.code, 0, other.stderr);
  t.equal(await all(SLOW), 0, "another model's reset changes nothing");
  const end = await runCommand(gateway.folder, ['upstreams', 'reset', TEST_MODEL]);
  t.equal(end.code, 0, end.stderr);
  t.match(end.stdout, new RegExp(TEST_MODEL));
  t.equal(await all(SLOW), DEALT_OUT);
});

void t.test('without a gateway the command says so', async (t) => {
  const end = await runCommand(t.testdir(), ['upstreams', 'reset']);
  t.equal(end.code, 1);
  t.match(end.stderr, /No gateway serves/);
});
