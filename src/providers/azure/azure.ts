/**
 * Paths and headers of Azure OpenAI. Azure speaks OpenAI's protocol, so bodies and responses pass as they
 * are, and there is no Provider. On the main thread gateway/snapshot.ts makes the path once for each
 * upstream; in upstream workers provider-client.ts adds the headers to each call.
 *
 * Follows "Azure OpenAI in Microsoft Foundry Models REST API reference" (2024-10-21:
 * learn.microsoft.com/azure/ai-foundry/openai/reference; the v1 interface: …/openai/latest), read in November
 * 2026.
 *
 * Test: test/e2e/providers-azure.test.ts.
 */
import type { Credential } from '../provider.js';

/**
 * The query for versions of the interface whose path names no deployment, because the body's `model` does.
 */
const V1_QUERIES: Readonly<Record<string, string>> = { v1: '', preview: '?api-version=preview' };

/** `basePath` without a slash at its end; `operation` is `/chat/completions` or another of OpenAI's paths. */
export function azurePath(
  basePath: string,
  apiVersion: string,
  deployment: string,
  operation: string,
): string {
  const v1Query = V1_QUERIES[apiVersion];
  if (v1Query !== undefined) return `${basePath}/openai/v1${operation}${v1Query}`;
  const name = encodeURIComponent(deployment);
  return `${basePath}/openai/deployments/${name}${operation}?api-version=${apiVersion}`;
}

/** Empty without a credential: then the headers that the settings give the upstream authorise it. */
export function azureHeaders(credential: Credential | undefined): readonly string[] {
  if (credential?.kind === 'key') return ['api-key', credential.key];
  return credential?.kind === 'bearer' ? ['authorization', `Bearer ${credential.token}`] : [];
}
