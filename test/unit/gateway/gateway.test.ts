/** A gateway that is told to end while it starts opens nothing any more. */
import { connect } from 'node:net';
import t from 'tap';
import { openStore } from '#src/gateway/accounting-base.js';
import { findPort } from '#src/gateway/admin-service.js';
import { Gateway } from '#src/gateway/gateway.js';
import { SupervisorLink } from '#src/gateway/supervisor-link.js';
import { createLogSwitch } from '#src/telemetry/log.js';
import { worldOf } from '../config/support.js';
import { ListLog } from '../store/support.js';

const HOST = '127.0.0.1';

const isOpen = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, HOST, () => {
      socket.destroy();
      resolve(true);
    }).once('error', () => resolve(false));
  });

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
    const found = await findPort(HOST, 0, 'listen');
    found.release();
    const { settings } = worldOf(t, {
      'tollgate.yaml': [
        `data: ${t.testdir({})}`,
        `listen: { host: ${HOST}, port: ${found.port}, listeners: 1 }`,
        'models: [{ id: m, upstreams: [{ url: "echo:" }] }]',
        'plans: [{ id: p, requests_per_minute: 1, calls_per_day: 1 }]',
        'workers: 1',
      ].join('\n'),
    }).load();
    const log = new ListLog();
    const gateway = new Gateway({
      settings,
      store: openStore(settings, undefined),
      demo: false,
      inForce: [],
      log,
      logSwitch: createLogSwitch(),
      leads: false,
      joins: false,
      supervisor: new SupervisorLink(() => Promise.resolve()),
      onHopeless: (reason) => t.fail(reason),
    });
    const started = gateway.start();
    const ended = end === 'close' ? gateway.close() : gateway.drain(false);
    await t.rejects(started, /was ended while it started/, end);
    await ended;
    t.notOk(await isOpen(found.port), `${end}: nobody listens`);
    t.match(JSON.stringify(log.lines), /gateway ended/);
    t.notMatch(JSON.stringify(log.lines), /gateway serves|OTEL_/);
  }
});
