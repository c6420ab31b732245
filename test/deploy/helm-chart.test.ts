/**
 * The chart, linted and rendered by Helm itself, its objects judged by Kubernetes' schemas and held against
 * each other.
 */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { parse } from 'yaml';
import { loadSettings } from '#src/config/load.js';
import { METRIC_FAMILIES } from '#src/telemetry/exposition.js';
import { hasHelm, lint, render, type Labels, type PodSpec, type Rendered } from './helm-chart.js';
import { kubernetesFaults } from './schemas.js';

const skip = !(await hasHelm()) && 'no helm: test/setup-tools.sh deploy builds it';

const CONFIG = {
  drain_timeout_ms: 90_500,
  limits: { body_bytes: 268_435_456, keys: 2_000_000 },
  models: [
    {
      id: 'm',
      owned_by: 'o',
      price: { input: '0.15', output: '0.60' },
      max_output_tokens: 16_384,
      upstreams: [{ url: 'https://provider.example/v1', key: '${PROVIDER_KEY}' }],
    },
  ],
  plans: [{ id: 'p', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
};
const OPERATORS = [{ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'monitoring' } } }];
/** Everything on. */
const FULL = {
  image: { repository: 'registry.example/tollgate', tag: '9.9.9', pullSecrets: [{ name: 'pull' }] },
  config: CONFIG,
  secrets: { values: { PROVIDER_KEY: '12345' }, existing: 'mine' },
  persistence: { size: '20Gi', storageClass: 'fast' },
  service: { type: 'LoadBalancer', port: 443, annotations: { a: 'b' } },
  preStopSeconds: 7,
  resources: { limits: { memory: '1Gi' } },
  networkPolicy: { callers: [{ podSelector: {} }], operators: OPERATORS },
  serviceMonitor: { enabled: true, interval: '15s', labels: { release: 'prometheus' } },
  nodeSelector: { disk: 'fast' },
  tolerations: [{ key: 'gateway', operator: 'Exists' }],
  affinity: { nodeAffinity: {} },
  podAnnotations: { a: 'b' },
  podLabels: { team: 'gateway' },
};

const podOf = (objects: Map<string, Rendered>): PodSpec =>
  objects.get('StatefulSet/prod-tollgate')!.spec.template!.spec;

void t.test('lint and schemas', { skip }, async (t) => {
  for (const [name, values] of Object.entries({
    defaults: {},
    full: FULL,
    trial: { persistence: { enabled: false }, networkPolicy: { enabled: false }, preStopSeconds: 0 },
    scaled: { config: { sharing: { url: 'redis://valkey' } }, autoscaling: { enabled: true } },
  })) {
    t.match(await lint(values), /1 chart\(s\) linted, 0 chart\(s\) failed/, `${name}: linted`);
    const objects = await render(values);
    for (const [id, object] of objects) t.same(kubernetesFaults(object), [], `${name}: ${id}`);
    t.ok(objects.has('StatefulSet/prod-tollgate'), name);
  }
  const [, set] = [...(await render({}))].find(([id]) => id.startsWith('StatefulSet/'))!;
  t.not(kubernetesFaults({ ...set, spec: { ...set.spec, replics: 1 } } as Rendered).length, 0, 'schemas see');
});

void t.test('objects that refer to each other', { skip }, async (t) => {
  const objects = await render(FULL);
  const set = objects.get('StatefulSet/prod-tollgate')!;
  const template = set.spec.template!;
  const [container] = template.spec.containers;
  const selects = (selector: Labels | undefined, labels: Labels): boolean =>
    selector !== undefined && Object.entries(selector).every(([name, value]) => labels[name] === value);

  const admin = objects.get(`Service/${set.spec.serviceName!}`)!;
  const service = objects.get('Service/prod-tollgate')!;
  for (const selector of [
    set.spec.selector?.matchLabels,
    service.spec.selector,
    admin.spec.selector,
    objects.get('PodDisruptionBudget/prod-tollgate')!.spec.selector?.matchLabels,
    objects.get('NetworkPolicy/prod-tollgate')!.spec.podSelector?.matchLabels,
  ] as (Labels | undefined)[]) {
    t.ok(selects(selector, template.metadata.labels), 'the pods are selected');
  }
  const monitor = objects.get('ServiceMonitor/prod-tollgate')!.spec;
  t.ok(selects(monitor.selector?.matchLabels, admin.metadata.labels), 'operators’ service is scraped');
  t.notOk(selects(monitor.selector?.matchLabels, service.metadata.labels), 'and callers’ is not');
  t.equal(monitor.endpoints?.[0]?.port, admin.spec.ports?.[0]?.name);
  t.equal(admin.metadata.labels[monitor.jobLabel ?? ''], 'tollgate', 'the job that the alerts ask for');

  const ports = Object.fromEntries(container.ports.map(({ name, containerPort }) => [name, containerPort]));
  const environment = Object.fromEntries(container.env.map(({ name, value }) => [name, value]));
  t.match(environment, { TOLLGATE_PORT: String(ports.http), TOLLGATE_ADMIN_PORT: String(ports.admin) });
  t.equal(service.spec.ports?.[0]?.targetPort, 'http', 'callers do not reach the admin port');
  t.equal(admin.spec.ports?.[0]?.targetPort, 'admin');
  const { startupProbe, readinessProbe, livenessProbe } = container;
  t.same(
    [startupProbe, readinessProbe, livenessProbe].map(({ httpGet }) => [httpGet.path, httpGet.port]),
    [
      ['/healthz', 'admin'],
      ['/readyz', 'admin'],
      ['/healthz', 'admin'],
    ],
  );

  const volumes = [
    ...template.spec.volumes!.map(({ name }) => name),
    ...set.spec.volumeClaimTemplates!.map(({ metadata }) => metadata.name),
  ];
  t.same(container.volumeMounts.map(({ name }) => name).sort(), volumes.sort(), 'every volume is mounted');
  t.same(
    container.envFrom?.map(({ secretRef }) => secretRef.name),
    ['prod-tollgate', 'mine'],
  );
  t.ok(objects.has('Secret/prod-tollgate'));
  t.same(
    objects
      .get('NetworkPolicy/prod-tollgate')!
      .spec.ingress?.map(({ ports: [port], from }) => [port?.port, from]),
    [
      ['http', FULL.networkPolicy.callers],
      ['admin', OPERATORS],
    ],
  );
});

void t.test('the settings arrive as they were given', { skip }, async (t) => {
  const objects = await render(FULL);
  const text = objects.get('ConfigMap/prod-tollgate')!.data!['tollgate.yaml']!;
  t.same(parse(text), CONFIG);
  const folder = t.testdir({ 'tollgate.yaml': text });
  const { settings } = loadSettings({}, { environment: { PROVIDER_KEY: '12345' }, workingDirectory: folder });
  t.equal(settings.limits.body_bytes, CONFIG.limits.body_bytes, 'a number that Go writes as 2.68435456e+08');
  t.notOk((await render({})).has('ConfigMap/prod-tollgate'), 'none where none were given');

  const restarted = podTemplateOf(await render({ ...FULL, config: { ...CONFIG, workers: 2 } }));
  t.notSame(restarted.annotations, podTemplateOf(objects).annotations, 'other settings are another pod');
  const watching = { ...CONFIG, watch: true };
  t.same(
    podTemplateOf(await render({ ...FULL, config: { ...watching, low_balance: 'clamp' } })),
    podTemplateOf(await render({ ...FULL, config: watching })),
    'not where the gateway watches its file',
  );
});

const podTemplateOf = (objects: Map<string, Rendered>): { readonly annotations?: object } =>
  objects.get('StatefulSet/prod-tollgate')!.spec.template!.metadata as { readonly annotations?: object };

void t.test('the end of a pod: asleep, drained, and then time left', { skip }, async (t) => {
  const pod = podOf(await render(FULL));
  t.same(pod.containers[0].lifecycle?.preStop.exec.command, ['sleep', '7']);
  t.equal(pod.terminationGracePeriodSeconds, 7 + 91 + 25);
  const { settings } = loadSettings({}, { environment: {}, workingDirectory: '/' });
  t.equal(podOf(await render({})).terminationGracePeriodSeconds, 5 + settings.drain_timeout_ms / 1_000 + 25);
});

void t.test('it is this version and the image’s user, and may do nothing else', { skip }, async (t) => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  const [, uid] = /^USER (\d+):\d+$/m.exec(readFileSync('Dockerfile', 'utf8'))!;
  const objects = await render({});
  const pod = podOf(objects);
  t.equal(pod.containers[0].image, `tollgate:${version}`);
  const chart = parse(readFileSync('deploy/helm/tollgate/Chart.yaml', 'utf8')) as { version: string };
  t.equal(chart.version, version);
  t.match(pod.securityContext, { runAsNonRoot: true, runAsUser: Number(uid), fsGroup: Number(uid) });
  t.match(pod.containers[0].securityContext, {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
  });
  t.equal(objects.get('StatefulSet/prod-tollgate')!.spec.replicas, 1, 'one gateway owns the books');
});

void t.test('values that cannot be', { skip }, async (t) => {
  await t.rejects(render({ persistance: {} }), /persistance/, 'misspelt');
  await t.rejects(render({ service: { port: 'http' } }), /port/);
  await t.rejects(render({ autoscaling: { enabled: true } }), /wants config\.sharing/);
  await t.rejects(render({ replicas: 2 }), /replicas above 1 want config\.sharing/);
  const two = await render({ replicas: 2, config: { sharing: { url: 'redis://valkey' } } });
  t.equal(two.get('StatefulSet/prod-tollgate')!.spec.replicas, 2);
  const scaled = await render({
    autoscaling: { enabled: true },
    config: { sharing: { url: 'redis://valkey' } },
  });
  const scaler = scaled.get('HorizontalPodAutoscaler/prod-tollgate')!;
  t.ok(scaled.has(`StatefulSet/${scaler.spec.scaleTargetRef!.name}`));
  const metric = scaler.spec.metrics?.[0]?.pods.metric.name;
  t.ok(
    METRIC_FAMILIES.some(({ name }) => name === metric),
    'it follows a metric that there is',
  );
  t.equal(scaled.get('StatefulSet/prod-tollgate')!.spec.replicas, undefined, 'the scaler’s business');
});
