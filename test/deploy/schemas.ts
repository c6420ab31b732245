/**
 * What is deployed against published schemas, which extract-schemas.mjs made fixtures of: judges that are not
 * ours.
 */
import { readFileSync } from 'node:fs';
import { Errors } from 'typebox/schema';

interface KubernetesSchemas {
  /** `apiVersion/kind` to the name of its definition. */
  readonly kinds: Readonly<Record<string, string>>;
  readonly definitions: object;
}

const read = (name: string): unknown => JSON.parse(readFileSync(`test/fixtures/${name}`, 'utf8'));
const kubernetes = read('kubernetes-schemas.json') as KubernetesSchemas;
const compose = read('compose-schema.json') as { readonly schema: object };

export interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
}

/** Empty where it is what the API server takes in strict mode: known fields alone, of the right types. */
export function kubernetesFaults(object: KubernetesObject): string[] {
  const name = kubernetes.kinds[`${object.apiVersion}/${object.kind}`];
  if (name === undefined) return [`no schema of ${object.apiVersion}/${object.kind}`];
  return faults({ definitions: kubernetes.definitions, $ref: `#/definitions/${name}` }, object);
}

export function composeFaults(file: unknown): string[] {
  return faults(compose.schema, file);
}

function faults(schema: object, value: unknown): string[] {
  const [valid, errors] = Errors(schema, value);
  return valid ? [] : errors.map(({ instancePath, message }) => `${instancePath} ${message}`);
}
