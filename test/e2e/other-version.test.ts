/**
 * A gateway whose supervisor is of another version: the settings that it is sent lack some, and it serves
 * with their defaults.
 */
import { EventEmitter, once } from 'node:events';
import t from 'tap';
import { loadSettings } from '#src/config/load.js';
import type { Settings } from '#src/config/schema.js';
import type { GatewayReady } from '#src/gateway/messages.js';
import { GatewayProcess, type GatewayExit } from '#src/supervisor/gateway-process.js';
import { temporaryFolder } from '../support/gateway.js';
import { request } from '../support/http.js';

const ENTRY = new URL('../../../dist/gateway/main.js', import.meta.url);
const LONG_MS = 60_000;

/** The settings without the members at these paths: absent and undefined are the same to readers. */
function without(settings: Settings, ...paths: string[]): Settings {
  const copy = structuredClone(settings) as unknown as Record<string, unknown>;
  for (const path of paths) {
    const names = path.split('.');
    const last = names.pop()!;
    const section = names.reduce((value, name) => value[name] as Record<string, unknown>, copy);
    t.ok(last in section, path);
    section[last] = undefined;
  }
  return copy as unknown as Settings;
}

void t.test('it completes what it is sent, and survives what it cannot take', async (t) => {
  const folder = temporaryFolder(t);
  const { settings, demo, inForce } = loadSettings(
    { port: 0, adminPort: 0, data: folder },
    { environment: {}, workingDirectory: folder },
  );
  const errors: unknown[] = [];
  const log = {
    error: (message: string, fields?: object) => void errors.push([message, fields]),
    warn: () => undefined,
    info: () => undefined,
    record: () => undefined,
  };
  const events = new EventEmitter();
  const ready = once(events, 'ready') as Promise<[GatewayReady]>;
  const exit = once(events, 'exit') as Promise<[GatewayExit]>;
  const notAsked = (): Promise<never> => Promise.reject(new Error('not asked'));
  const gateway = new GatewayProcess(
    {
      entry: ENTRY,
      readyMsMax: LONG_MS,
      silentMsMax: LONG_MS,
      exitGraceMs: LONG_MS,
      reloadMsMax: LONG_MS,
      log,
    },
    {
      kind: 'start',
      settings: without(settings, 'limits.groups', 'limits.client_idle_timeout_ms', 'idempotency'),
      demo,
      inForce,
      leads: true,
      joins: false,
      isRestart: false,
    },
    {
      onReady: (message) => void events.emit('ready', message),
      onExit: (message) => void events.emit('exit', message),
      onLeads: () => undefined,
      onLastSnapshot: () => undefined,
      requests: {
        onReloadRequested: notAsked,
        onSnapshotsRequested: notAsked,
        onBroadcast: () => undefined,
        onRecorded: () => undefined,
      },
    },
  );
  t.teardown(() => gateway.kill('the test ends'));
  const failed = exit.then(([{ rejection, how }]) => {
    throw new Error(`it did not start: ${rejection ?? how}`);
  });
  const [{ port, demoKey }] = await Promise.race([ready, failed]);
  failed.catch(() => undefined);
  const call = async (): Promise<number> =>
    (
      await request({
        port,
        path: '/v1/chat/completions',
        headers: { authorization: `Bearer ${demoKey!}` },
        body: { model: 'echo', messages: [{ role: 'user', content: 'Hello' }] },
      })
    ).status;
  t.equal(await call(), 200);

  const lacking = without(settings, 'limits.calls_in_flight_per_account', 'token_quota', 'cache');
  t.same(await gateway.reload(lacking, { check: false }), []);
  t.equal(await call(), 200, 'the bound of calls of an account is its default');

  t.match(await gateway.reload(without(settings, 'models'), { check: false }), [
    /^the gateway failed while it took/,
  ]);
  t.equal(await call(), 200, 'it serves on with the settings from before');
  t.same(await gateway.reload(settings, { check: false }), []);
  gateway.send({ kind: 'drain', replaced: false });
  t.match(await exit, [{ clean: true }]);
  t.same(errors, []);
});
