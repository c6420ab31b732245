/** Where a provider is called: the upstream's address. Main thread of a command. */
import { isUpstreamUrl } from '../model-schema.js';
import type { Provider } from './provider.js';
import type { ImportMap } from './remarks.js';
import type { Variables } from './variables.js';

/** A parameter of the entry, or of the credential that it names. */
export type Parameter = (wanted: string) => string | undefined;

/** Both are undefined, with a remark, where the entry gives no address that can be called. */
export function openaiPlace(
  own: ImportMap,
  provider: Provider,
  parameter: Parameter,
  variables: Variables,
): string | undefined {
  const base = parameter('api_base') ?? parameter('base_url');
  if (base === undefined) {
    if (provider.url !== undefined) return provider.url;
    own.remark('model', 'api_base is missing: the entry was left out');
    return undefined;
  }
  const url = variables.text(base.replace(/\/+$/, ''));
  const full = provider.path === undefined || url.endsWith(provider.path) ? url : url + provider.path;
  return checkedUrl(own, full);
}

/** Of Azure's two interfaces the one that LiteLLM uses: a path a deployment with a dated version, or `/openai/v1`. */
export function azurePlace(
  own: ImportMap,
  model: string,
  parameter: Parameter,
  variables: Variables,
): string | undefined {
  const base = parameter('api_base') ?? parameter('base_url');
  const version = parameter('api_version');
  if (base === undefined) {
    own.remark('model', 'api_base is missing: the entry was left out');
    return undefined;
  }
  const url = variables.text(base.replace(/\/+$/, ''));
  if (url.startsWith('${')) own.remark('api_base', 'the variable must not end with a slash');
  if (url.includes('/openai/v1')) return checkedUrl(own, url);
  if (version === 'v1' || version === 'latest' || version === 'preview') {
    return checkedUrl(own, `${url}/openai/v1${version === 'preview' ? '?api-version=preview' : ''}`);
  }
  if (version === undefined) own.remark('model', `no api_version is given: ${AZURE_VERSION} was taken`);
  const path = url.includes('/openai/deployments/') ? url : `${url}/openai/deployments/${model}`;
  return checkedUrl(own, `${path}?api-version=${variables.text(version ?? AZURE_VERSION)}`);
}

/** The last dated version of Azure that is generally available. */
const AZURE_VERSION = '2024-10-21';

function checkedUrl(own: ImportMap, url: string): string | undefined {
  // What a variable holds is checked when the settings are read.
  if (url.startsWith('${') || isUpstreamUrl(url)) return url;
  own.remark('api_base', 'no http:// or https:// address without user and password; the entry was left out');
  return undefined;
}
