/** A gateway that is told to end, while it starts and while it serves; reloads and orders meanwhile. */
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { openStore } from '#src/gateway/accounting-base.js';
import { AdminService } from '#src/gateway/admin-service.js';
import { findPort } from '#src/gateway/find-port.js';
import { Gateway } from '#src/gateway/gateway.js';
import type { GatewayOptions } from '#src/gateway/gateway-options.js';
import { Notifications } from '#src/gateway/notifications.js';
import { GATEWAY_STOPS } from '#src/gateway/reload.js';
import { SupervisorLink } from '#src/gateway/supervisor-link.js';
import { CredentialKeeper } from '#src/providers/credentials/credential-keeper.js';
import { ChangeFollower } from '#src/sharing/change-follower.js';
import type { Hosts } from '#src/sharing/open-hosts.js';
import { LedgerFlush } from '#src/store/flush.js';
import { createLogSwitch } from '#src/telemetry/log-switch.js';
import { worldOf } from '../config/support.js';
import { ListLog } from '../store/support.js';

const HOST = '127.0.0.1';
const APPLY = { check: false };

const isOpen = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, HOST, () => {
      socket.destroy();
      resolve(true);
    }).once('error', () => resolve(false));
  });

/** A gateway with the parts of its options that `more` has, its log, and the port that it would open. */
async function gatewayOf(t: Test, more: Partial<GatewayOptions> = {}) {
  const found = await findPort(HOST, 0, 'listen');
  found.release();
  const { settings } = worldOf(t, {
    'tollgate.yaml': [
      `data: ${t.testdir({})}`,
      `listen: { host: ${HOST}, port: ${found.port}, listeners: 1 }`,
      'models: [{ id: m, upstreams: [{ url: "echo:" }] }]',
      'plans: [{ id: p, requests_per_minute: 1, calls_per_day: 1 }]',
      'workers: 1',
      'admin: { port: 0 }',
      // No flush of the timer comes between.
      'flush_interval_ms: 60000',
    ].join('\n'),
  }).load();
  const log = new ListLog();
  const gateway = new Gateway({
    settings,
    store: openStore(settings, more.group),
    demo: false,
    inForce: [],
    log,
    logSwitch: createLogSwitch(),
    leads: false,
    joins: false,
    supervisor: new SupervisorLink(() => Promise.resolve()),
    onFatal: (reason) => t.fail(reason),
    ...more,
  });
  return { gateway, log, settings, port: found.port };
}

void t.test('an end during the start leaves no port open, and starts no export', async (t) => {
  // An export of a protocol that is not known here says so as it starts.
  Object.assign(process.env, {
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://${HOST}:1`,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
  });
  t.teardown(() => {
    delete process.env.OTEL_EXPORTER_OTLP_ENDPOINT;
    delete process.env.OTEL_EXPORTER_OTLP_PROTOCOL;
  });
  for (const end of ['close', 'drain'] as const) {
    const { gateway, log, port } = await gatewayOf(t);
    const started = gateway.start();
    const ended = end === 'close' ? gateway.close() : gateway.drain({ replaced: false });
    await t.rejects(started, /was ended while it started/, end);
    await ended;
    t.notOk(await isOpen(port), `${end}: nobody listens`);
    t.match(JSON.stringify(log.lines), /gateway ended/);
    t.notMatch(JSON.stringify(log.lines), /gateway serves|OTEL_/);
  }
});

void t.test(
  'an end while the registry of the other hosts is joined starts nothing that shares',
  async (t) => {
    let onJoined: () => void = () => undefined;
    const joined = new Promise<void>((resolve) => (onJoined = resolve));
    // Nothing is asked of the coordinator before the registry is joined.
    const coordinator = { close: () => Promise.resolve() };
    const hosts = {
      registry: { join: () => joined, state: { kind: 'joining' } },
      coordinators: { calls: coordinator, debits: coordinator },
      closeRegistry: () => Promise.resolve(),
    };
    const { gateway, log } = await gatewayOf(t, {
      group: { id: 'group', slot: 0 },
      openHosts: () => hosts as unknown as Hosts,
    });
    const looks = t.capture(ChangeFollower.prototype, 'poll');
    const starts = t.capture(ChangeFollower.prototype, 'start');
    const started = gateway.start();
    const rejected = t.rejects(started, /was ended while it started/);
    await gateway.close();
    onJoined();
    await rejected;
    t.same([looks(), starts()], [[], []], 'no timer looks into the closed store');
    t.notMatch(JSON.stringify(log.lines), /error/);
  },
);

void t.test('charges are written before the end waits for a part that may hang', async (t) => {
  const { gateway } = await gatewayOf(t);
  await gateway.start();
  const flushes = t.capture(LedgerFlush.prototype, 'run', () => true);
  let flushesBefore = 0;
  // Of all that is waited for after the listeners, the workers come first, and their credentials before them.
  t.capture(CredentialKeeper.prototype, 'close', () => (flushesBefore = flushes().length));
  t.equal(await gateway.close(), true);
  t.equal(flushesBefore, 1, 'what the listeners have left');
  t.equal(flushes().length, 1, 'and the last flush');
});

void t.test('a reload under way when the gateway closes is told so, and logs no error', async (t) => {
  const { gateway, log, settings } = await gatewayOf(t);
  await gateway.start();
  const reloads = [gateway.reload(settings, APPLY), gateway.reload(settings, APPLY)];
  // The first reload has begun by then, and no thread has replied to it.
  await new Promise<void>((resolve) => process.nextTick(resolve));
  await gateway.close();
  t.same(await Promise.all(reloads), [[GATEWAY_STOPS], [GATEWAY_STOPS]]);
  t.same(await gateway.reload(settings, APPLY), [GATEWAY_STOPS]);
  t.notMatch(JSON.stringify(log.lines), /error/);
});

void t.test(
  'a gateway that is to follow while it starts opens no admin interface, and sends no webhooks',
  async (t) => {
    const opened = t.capture(AdminService.prototype, 'open');
    const led = t.capture(Notifications.prototype, 'lead');
    for (const follows of [false, true]) {
      const { gateway } = await gatewayOf(t, { leads: true });
      const started = gateway.start();
      if (follows) gateway.follow();
      await started;
      t.equal(opened().length, follows ? 0 : 1);
      t.equal(led().length, follows ? 0 : 1);
      await gateway.close();
    }
  },
);
