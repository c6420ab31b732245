/** The chart as Helm sees it: rendered with values, as objects. */
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { parseAllDocuments } from 'yaml';
import type { KubernetesObject } from './schemas.js';

const run = promisify(execFile);

const CHART = 'deploy/helm/tollgate';
/** A Helm that was built from source believes in the oldest cluster there is. */
const KUBERNETES = '1.36.0';
const HELM_TIMEOUT_MS = 120_000;
const OUTPUT_BYTES_MAX = 4 * 1024 * 1024;

/** Where test/setup-tools.sh puts it; else the machine's. */
const HELM = existsSync('build/tools/helm') ? 'build/tools/helm' : 'helm';

/** Rejects with what Helm says. */
async function helm(values: object, args: readonly string[]): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  const file = join(folder, 'values.json');
  writeFileSync(file, JSON.stringify(values));
  try {
    const all = [...args, CHART, '--values', file, '--kube-version', KUBERNETES];
    return (await run(HELM, all, { timeout: HELM_TIMEOUT_MS, maxBuffer: OUTPUT_BYTES_MAX })).stdout;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export async function hasHelm(): Promise<boolean> {
  return run(HELM, ['version', '--short'], { timeout: HELM_TIMEOUT_MS }).then(
    () => true,
    () => false,
  );
}

export const lint = (values: object): Promise<string> => helm(values, ['lint', '--strict']);

/** Objects of the release `prod` by `kind/name`, empty documents left out. */
export async function render(values: object): Promise<Map<string, Rendered>> {
  const text = await helm(values, ['template', 'prod', '--namespace', 'gateways']);
  const objects = parseAllDocuments(text)
    .map((document) => document.toJS() as Rendered | null)
    .filter((object) => object !== null);
  return new Map(objects.map((object) => [`${object.kind}/${object.metadata.name}`, object]));
}

/** Any of the chart's objects, as far as the test reads them; all of it is judged by schema. */
export interface Rendered extends KubernetesObject {
  readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> };
  readonly data?: Readonly<Record<string, string>>;
  readonly spec: {
    readonly replicas?: number;
    readonly serviceName?: string;
    readonly selector?: Labels & { readonly matchLabels?: Labels };
    readonly podSelector?: { readonly matchLabels: Labels };
    readonly scaleTargetRef?: { readonly name: string };
    readonly metrics?: readonly { readonly pods: { readonly metric: { readonly name: string } } }[];
    readonly ports?: readonly { readonly name: string; readonly targetPort: string }[];
    readonly jobLabel?: string;
    readonly endpoints?: readonly { readonly port: string; readonly path: string }[];
    readonly ingress?: readonly {
      readonly ports: readonly { readonly port: string }[];
      readonly from?: unknown;
    }[];
    readonly template?: { readonly metadata: Rendered['metadata']; readonly spec: PodSpec };
    readonly volumeClaimTemplates?: readonly { readonly metadata: { readonly name: string } }[];
  };
}

export type Labels = Readonly<Record<string, string>>;

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}

export interface PodSpec {
  readonly terminationGracePeriodSeconds: number;
  readonly securityContext: object;
  readonly volumes?: readonly { readonly name: string; readonly configMap?: { readonly name: string } }[];
  readonly containers: readonly [
    {
      readonly image: string;
      readonly env: readonly { readonly name: string; readonly value: string }[];
      readonly envFrom?: readonly { readonly secretRef: { readonly name: string } }[];
      readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
      readonly startupProbe: Probe;
      readonly readinessProbe: Probe;
      readonly livenessProbe: Probe;
      readonly lifecycle?: { readonly preStop: { readonly exec: { readonly command: readonly string[] } } };
      readonly securityContext: object;
      readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
    },
  ];
}
