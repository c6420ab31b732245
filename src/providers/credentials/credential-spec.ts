/**
 * Which credentials the settings ask for: those that expire, and that the gateway renews. Two upstreams that
 * ask for the same share one, and with it its renewals. gateway/snapshot.ts numbers them when it makes the
 * routes; the keeper renews them by that number. Main thread of a gateway process, and commands.
 */
import type { ProviderName } from '../../core/provider-names.js';
import type { Credential } from '../provider.js';

/** The scope of tokens for Azure OpenAI. */
export const ENTRA_SCOPE = 'https://cognitiveservices.azure.com/.default';

/** Where a credential comes from. A plain record without secrets. */
export type CredentialSpec =
  /** `file`: of a service account or a workload identity; undefined for the environment's own. */
  | { readonly kind: 'google'; readonly file: string | undefined }
  /** The chain of the AWS SDK; `profile` in place of AWS_PROFILE. */
  | { readonly kind: 'aws'; readonly profile: string | undefined }
  | { readonly kind: 'entra'; readonly scope: string };

/** What an upstream worker gets to know of a credential. */
export interface CredentialRecord {
  readonly position: number;
  /** Grows with each renewal. */
  readonly revision: number;
  /** Undefined if there is none now: it could not be had, has expired, or is not wanted any more. */
  readonly credential: Credential | undefined;
}

/** What decides on it among the settings of an upstream. */
export interface CredentialSettings {
  readonly provider?: ProviderName | undefined;
  readonly key?: string | undefined;
  readonly credentials_file?: string | undefined;
  readonly profile?: string | undefined;
}

/** Of a model's route, as upstream/target.ts has it. */
export interface RouteOfCredentials {
  readonly retired?: true;
  readonly targets: readonly { readonly provider: { readonly credential: number | undefined } | undefined }[];
}

/** Returns undefined if the upstream has a key, or needs no credential. */
export function credentialSpecOf(upstream: CredentialSettings): CredentialSpec | undefined {
  if (upstream.key !== undefined) return undefined;
  switch (upstream.provider) {
    case 'vertex':
      return { kind: 'google', file: upstream.credentials_file };
    case 'bedrock':
      return { kind: 'aws', profile: upstream.profile };
    case 'azure':
      return { kind: 'entra', scope: ENTRA_SCOPE };
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

/** Numbers the specs. A number keeps its meaning as long as the process runs, whatever is reloaded. */
export class CredentialPositions {
  readonly #specs: CredentialSpec[] = [];
  readonly #positions = new Map<string, number>();

  /** The same for the same spec. */
  positionOf(spec: CredentialSpec): number {
    const name = nameOfSpec(spec);
    let position = this.#positions.get(name);
    if (position === undefined) {
      position = this.#specs.push(spec) - 1;
      this.#positions.set(name, position);
    }
    return position;
  }

  /** `position` is one that `positionOf` has returned. */
  specOf(position: number): CredentialSpec {
    return this.#specs[position]!;
  }
}

/** Its name for operators, in logs, the status and metrics: `google:/etc/sa.json`, `aws:bills`, `entra`. */
export function nameOfSpec(spec: CredentialSpec): string {
  const detail =
    spec.kind === 'google'
      ? spec.file
      : spec.kind === 'aws'
        ? spec.profile
        : spec.scope === ENTRA_SCOPE
          ? undefined
          : spec.scope;
  return detail === undefined ? spec.kind : `${spec.kind}:${detail}`;
}
