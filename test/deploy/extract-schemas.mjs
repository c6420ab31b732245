/**
 * Makes a fixture of a published schema: the definitions that some kinds need, without descriptions, and
 * closed, so that a misspelt field is found. By hand, when a newer version is wanted; the file's first member
 * says what it was made from.
 *
 * usage: node extract-schemas.mjs kubernetes OPENAPI_SWAGGER_JSON SERVICE_MONITOR_CRD_JSON >
 * kubernetes-schemas.json
 *        node extract-schemas.mjs compose COMPOSE_SPEC_JSON > compose-schema.json
 *
 * Kubernetes: api/openapi-spec/swagger.json of the Go module k8s.io/kubernetes v1.36.3. ServiceMonitor:
 * jsonnet/prometheus-operator/servicemonitors-crd.json of github.com/prometheus-operator/prometheus-operator
 * v0.85.0. Compose: schema/compose-spec.json of github.com/compose-spec/compose-go/v2 v2.16.2. All
 * Apache-2.0.
 */
import { readFileSync } from 'node:fs';

/** `apiVersion/kind` to the name of its definition. */
const KINDS = {
  'apps/v1/StatefulSet': 'io.k8s.api.apps.v1.StatefulSet',
  'autoscaling/v2/HorizontalPodAutoscaler': 'io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler',
  'networking.k8s.io/v1/NetworkPolicy': 'io.k8s.api.networking.v1.NetworkPolicy',
  'policy/v1/PodDisruptionBudget': 'io.k8s.api.policy.v1.PodDisruptionBudget',
  'v1/ConfigMap': 'io.k8s.api.core.v1.ConfigMap',
  'v1/Secret': 'io.k8s.api.core.v1.Secret',
  'v1/Service': 'io.k8s.api.core.v1.Service',
};
const INT_OR_STRING = 'io.k8s.apimachinery.pkg.util.intstr.IntOrString';
const OBJECT_META = 'io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta';

const read = (path) => JSON.parse(readFileSync(path, 'utf8'));

/** Words of prose and of tools; a property may be called so too, and then its value is a schema. */
function stripped(value, inProperties = false) {
  if (Array.isArray(value)) return value.map((item) => stripped(item));
  if (typeof value !== 'object' || value === null) return value;
  const kept = Object.entries(value).filter(
    ([name]) => inProperties || !/^(?:description|deprecated|title|\$comment|x-.*)$/.test(name),
  );
  return Object.fromEntries(
    kept.map(([name, item]) => [
      name,
      stripped(item, !inProperties && ['properties', 'patternProperties', 'definitions'].includes(name)),
    ]),
  );
}

/** Kubernetes' schemas are open, its API server in strict mode is not. */
function closed(value, inProperties = false) {
  if (Array.isArray(value)) return value.map((item) => closed(item));
  if (typeof value !== 'object' || value === null) return value;
  const copy = Object.fromEntries(
    Object.entries(value).map(([name, item]) => [name, closed(item, !inProperties && name === 'properties')]),
  );
  if (!inProperties && copy.properties !== undefined) copy.additionalProperties ??= false;
  return copy;
}

function kubernetes(swaggerPath, monitorPath) {
  const all = read(swaggerPath).definitions;
  const definitions = {};
  const take = (name) => {
    if (definitions[name] !== undefined) return;
    definitions[name] =
      name === INT_OR_STRING ? { type: ['integer', 'string'] } : closed(stripped(all[name]));
    for (const [, next] of JSON.stringify(definitions[name]).matchAll(/"#\/definitions\/([^"]+)"/g))
      take(next);
  };
  Object.values(KINDS).forEach(take);
  const version = read(monitorPath).spec.versions.find(({ name }) => name === 'v1');
  const monitor = closed(stripped(version.schema.openAPIV3Schema));
  monitor.properties.metadata = { $ref: `#/definitions/${OBJECT_META}` };
  definitions.ServiceMonitor = monitor;
  return {
    from: 'Kubernetes 1.36.3, Prometheus operator 0.85.0; Apache-2.0; made by test/deploy/extract-schemas.mjs',
    kinds: { ...KINDS, 'monitoring.coreos.com/v1/ServiceMonitor': 'ServiceMonitor' },
    definitions: Object.fromEntries(Object.entries(definitions).sort(([a], [b]) => (a < b ? -1 : 1))),
  };
}

const compose = (path) => ({
  from: 'compose-go 2.16.2; Apache-2.0; made by test/deploy/extract-schemas.mjs',
  schema: stripped(read(path)),
});

const [source, ...paths] = process.argv.slice(2);
const made = source === 'kubernetes' ? kubernetes(...paths) : compose(...paths);
process.stdout.write(`${JSON.stringify(made)}\n`);
