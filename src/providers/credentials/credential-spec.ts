/**
 * Lists which expiring credentials the settings ask for, and the number of each. gateway/settings-records.ts
 * numbers them when it makes the routes. The number is the _position_ of the credential, by which
 * credential-keeper.ts renews it. Upstreams with equal specs share one credential and its renewals. Main
 * thread of a gateway process, and commands.
 *
 * Must hold: a position keeps its meaning as long as the process runs, whatever is reloaded, because calls in
 * flight have it in their target (test/unit/providers/credentials/credential-keeper.test.ts).
 */
import { invariant } from '../../core/errors.js';
import type { ProviderName } from '../../core/provider-names.js';
import type { Credential } from '../provider.js';

/** Where a credential comes from. A plain record without secrets. */
export type CredentialSpec =
  /** `file`: a service account or workload identity; undefined: the environment's default credentials. */
  | { readonly kind: 'google'; readonly file: string | undefined }
  /** The provider chain of the AWS SDK. `profile` replaces AWS_PROFILE; undefined: the chain's own. */
  | { readonly kind: 'aws'; readonly profile: string | undefined }
  | { readonly kind: 'entra' };

/** A credential as the keeper sends it to upstream workers. */
export interface CredentialRecord {
  readonly position: number;
  /** Rises with each new credential; from 0 again if the settings drop the position and name it again. */
  readonly generation: number;
  /**
   * Undefined if there is no credential now: no renewal has succeeded, the credential has expired, or no
   * upstream uses it any more.
   */
  readonly credential: Credential | undefined;
}

/** The texts of a credential that must appear nowhere, the longest first, because one may contain another. */
export function secretsOfCredential(credential: Credential): string[] {
  switch (credential.kind) {
    case 'key':
      return [credential.key];
    case 'bearer':
      return [credential.token];
    case 'aws':
      return [credential.sessionToken ?? '', credential.secretAccessKey, credential.accessKeyId].filter(
        (secret) => secret !== '',
      );
  }
}

/** The settings of an upstream that decide on its credential. */
interface CredentialSettings {
  readonly provider?: ProviderName | undefined;
  readonly key?: string | undefined;
  readonly credentials_file?: string | undefined;
  readonly profile?: string | undefined;
}

/** The part of a model's route (upstream/target.ts) that names credentials. */
interface RouteOfCredentials {
  readonly retired?: true;
  readonly targets: readonly { readonly provider: { readonly credential: number | undefined } | undefined }[];
}

/** Undefined if the upstream has a key, or needs no credential. */
export function credentialSpecOf(upstream: CredentialSettings): CredentialSpec | undefined {
  if (upstream.key !== undefined) return undefined;
  switch (upstream.provider) {
    case 'vertex':
      return { kind: 'google', file: upstream.credentials_file };
    case 'bedrock':
      return { kind: 'aws', profile: upstream.profile };
    case 'azure':
      return { kind: 'entra' };
    default:
      return undefined;
  }
}

/** Returns the positions that the upstreams of routes use, without those of removed models. */
export function credentialsOf(routes: readonly RouteOfCredentials[]): number[] {
  return routes.flatMap(({ retired, targets }) =>
    retired === undefined ? targets.flatMap(({ provider }) => provider?.credential ?? []) : [],
  );
}

/**
 * Numbers the specs, from 0, in the order in which they are first asked for. Numbers are never freed: reloads
 * add few, because equal specs have one.
 */
export class CredentialPositions {
  readonly #specs: CredentialSpec[] = [];
  readonly #positions = new Map<string, number>();

  positionOf(spec: CredentialSpec): number {
    const name = nameOfSpec(spec);
    let position = this.#positions.get(name);
    if (position === undefined) {
      position = this.#specs.push(spec) - 1;
      this.#positions.set(name, position);
    }
    return position;
  }

  /** Throws for a position that `positionOf` has not returned. */
  specOf(position: number): CredentialSpec {
    const spec = this.#specs[position];
    invariant(spec !== undefined, 'a credential is asked for by its position');
    return spec;
  }
}

/** Name of the credential in logs, status and metrics: `google:/etc/sa.json`, `aws:bills`, `entra`. */
export function nameOfSpec(spec: CredentialSpec): string {
  const detail = spec.kind === 'google' ? spec.file : spec.kind === 'aws' ? spec.profile : undefined;
  return detail === undefined ? spec.kind : `${spec.kind}:${detail}`;
}
