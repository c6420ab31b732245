/**
 * Paths and headers of Azure OpenAI. Azure speaks OpenAI's protocol, so bodies and responses pass as they
 * are, and Azure has no Provider (providers/provider.ts), which is what translates for others. On the main
 * thread gateway/snapshot.ts makes the path once for each upstream and door; in upstream workers
 * provider-client.ts adds the headers to each call. Pure.
 *
 * Follows "Azure OpenAI in Microsoft Foundry Models REST API reference" (2024-10-21:
 * learn.microsoft.com/azure/ai-foundry/openai/reference; the v1 interface: …/openai/latest), read in November
 * 2026.
 *
 * Must hold: a call has at most one of the two headers, and its path is the one that Azure documents for the
 * version (test/unit/providers/azure/azure.test.ts, test/e2e/providers-azure.test.ts).
 */
import type { Credential } from '../provider.js';

/** Queries by version, for versions whose path names no deployment because the body's `model` does. */
const V1_QUERIES: ReadonlyMap<string, string> = new Map([
  ['v1', ''],
  ['preview', '?api-version=preview'],
]);

/**
 * A base path at Cloudflare's AI Gateway, `/v1/ACCOUNT/GATEWAY/azure-openai/RESOURCE`, which has the
 * deployment right after the resource, and knows no version without a deployment
 * (developers.cloudflare.com/ai-gateway, page "Azure OpenAI", read 2026-11). Another proxy may have
 * `/azure-openai/NAME` in its path, so the whole path counts.
 */
const CLOUDFLARE = /^\/v1\/[^/]+\/[^/]+\/azure-openai\/[^/]+$/;

/**
 * Returns path and query of a call. `basePath`: the path of the upstream's `url`, without a slash at its end.
 * `deployment`: the model's name at the upstream, which may have any character, so it is encoded.
 * `apiVersion` goes out as it is: the settings allow only letters, digits, `.` and `-` in it
 * (config/upstream-schema.ts). `operation`: `/chat/completions`, or another of OpenAI's paths.
 */
export function azurePath(
  basePath: string,
  apiVersion: string,
  deployment: string,
  operation: string,
): string {
  const v1Query = V1_QUERIES.get(apiVersion);
  if (v1Query !== undefined) return `${basePath}/openai/v1${operation}${v1Query}`;
  const name = encodeURIComponent(deployment);
  const deployments = CLOUDFLARE.test(basePath) ? basePath : `${basePath}/openai/deployments`;
  return `${deployments}/${name}${operation}?api-version=${apiVersion}`;
}

/**
 * Returns the headers that authorise a call, each as its name and then its value. `key` is the key of the
 * settings, `bearer` a token of Microsoft Entra that the gateway renews. Empty without a credential: then the
 * headers that the settings give the upstream authorise the call. No upstream on Azure has the third kind,
 * `aws`.
 */
export function azureHeaders(credential: Credential | undefined): readonly string[] {
  if (credential?.kind === 'key') return ['api-key', credential.key];
  return credential?.kind === 'bearer' ? ['authorization', `Bearer ${credential.token}`] : [];
}
