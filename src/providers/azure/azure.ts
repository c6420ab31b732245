/**
 * Paths and errors of Azure OpenAI. Azure speaks OpenAI's protocol, so bodies and responses pass as they are,
 * and Azure has no Provider (providers/provider.ts), which is what translates for others. On the main thread
 * gateway/settings-records.ts makes the path once for each upstream and door; in upstream workers
 * provider-client.ts adds the headers to each call. Pure.
 *
 * Follows "Azure OpenAI in Microsoft Foundry Models REST API reference" (2024-10-21:
 * learn.microsoft.com/azure/ai-foundry/openai/reference; the v1 interface: …/openai/latest), read in November
 * 2026.
 *
 * Must hold: the path is the one that Azure documents for the version (test/e2e/providers-azure.test.ts too,
 * which tests the header of provider-client.ts: `api-key` or `authorization`, never both).
 */
import { membersOf, parsedJson } from '../../core/json.js';
import type { Provider, ProviderSettings } from '../provider.js';

/** The versions of Azure's v1 interface, each with its query. A path of v1 names no deployment. */
const V1_QUERIES: ReadonlyMap<string, string> = new Map([
  ['v1', ''],
  ['preview', '?api-version=preview'],
]);

/**
 * The base path of an upstream at Cloudflare's AI Gateway: `/v1/ACCOUNT/GATEWAY/azure-openai/RESOURCE`. The
 * deployment comes right after RESOURCE, without `/openai/deployments`. Cloudflare has no v1 interface
 * (developers.cloudflare.com/ai-gateway, page "Azure OpenAI", read 2026-11). The pattern matches whole paths
 * alone, because another proxy may have `/azure-openai/NAME` in its path.
 */
const CLOUDFLARE_BASE_PATH = /^\/v1\/[^/]+\/[^/]+\/azure-openai\/[^/]+$/;

/** Where a call goes at Azure. */
interface AzureCall {
  /** The model's name at the upstream, which may have any character, so it is encoded. */
  readonly deployment: string;
  /** `/chat/completions`, or another of OpenAI's paths. */
  readonly operation: string;
}

/**
 * Returns path and query of a call. `apiVersion` goes out as it is: the settings allow only letters, digits,
 * `.` and `-` in it (config/upstream-schema.ts).
 */
export function azurePath(
  { basePath, apiVersion }: Pick<ProviderSettings, 'basePath' | 'apiVersion'>,
  { deployment, operation }: AzureCall,
): string {
  const v1Query = V1_QUERIES.get(apiVersion);
  if (v1Query !== undefined) return `${basePath}/openai/v1${operation}${v1Query}`;
  const deploymentsPath = CLOUDFLARE_BASE_PATH.test(basePath) ? basePath : `${basePath}/openai/deployments`;
  return `${deploymentsPath}/${encodeURIComponent(deployment)}${operation}?api-version=${apiVersion}`;
}

/**
 * Reads errors of calls with a token of Entra, of which their texts are cleaned: those of Azure in OpenAI's
 * form, those of API Management, whose message is a member of the body, and a text as `error`, as some
 * proxies send. Of any other the status alone is passed on. Of a 404 too if it has no `error`: then it is
 * of a wrong path, and counts against the breaker as without a token.
 */
export const AZURE_ERRORS: Pick<Provider, 'readError'> = {
  readError(status, _header, body) {
    const members = membersOf(parsedJson(body));
    const { error } = members;
    const { message = members.message, code } = membersOf(error);
    if (status === 404 && error === undefined) return { status, message: '' };
    const text = typeof message === 'string' && message !== '' ? message : error;
    return {
      status,
      message: typeof text === 'string' ? text : '',
      code: typeof code === 'string' ? code : undefined,
    };
  },
};
