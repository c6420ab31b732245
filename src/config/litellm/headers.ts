/**
 * Converts the headers of an entry of LiteLLM's `model_list`. deployment.ts calls `headersOf`, in the process
 * of `tollgate config import-litellm`.
 *
 * Must hold (test/unit/config/litellm/import.test.ts):
 * - No header that `config check` rejects is carried over: the patterns are those of upstream-schema.ts and
 *   provider-settings.ts.
 * - No secret of the file is written. A header that is not carried over gets a remark.
 */
import type { ProviderName } from '../../core/provider-names.js';
import { AUTHORISING_HEADER, insteadOfHeader } from '../provider-settings.js';
import {
  BETA_PATTERN,
  BETAS_MAX,
  HEADER_NAMES,
  HEADER_NAMES_REJECTED,
  HEADER_NAMES_SECRET,
} from '../upstream-schema.js';
import { type Parameter, variableNameOf, type Variables } from './provider.js';
import type { ImportMap } from './remarks.js';

/**
 * Rewrites the secret `value`, which `map` has under `name`, as a reference to a variable. If the file has
 * the secret itself, the variable is called `variableName`, perhaps with a number at its end, and a remark
 * tells its name. Undefined for a word such as `none`, which stands for "no key".
 */
export function secretOf(
  map: ImportMap,
  name: string,
  value: string,
  variableName: string,
  variables: Variables,
): string | undefined {
  const secret = variables.secret(value, variableName);
  if (secret?.inline !== undefined) {
    map.remark(name, `a secret written inline is not carried over: set the variable ${secret.inline}`);
  }
  return secret?.reference;
}

interface ImportedHeaders {
  readonly headers: Readonly<Record<string, string>>;
  /** The beta features that the header `anthropic-beta` names; undefined without the header. */
  readonly betas: readonly string[] | undefined;
}

interface HeaderContext {
  /** The provider whose own protocol the upstream speaks; undefined if it is OpenAI's. */
  readonly speaks: ProviderName | undefined;
  /** Whether the upstream has a credential. */
  readonly isAuthorised: boolean;
  readonly parameter: Parameter;
}

/**
 * Returns the entry's `organization` and `extra_headers` as headers and beta features. `modelName`: the
 * model's name for callers, of which names of variables are made.
 */
export function headersOf(
  params: ImportMap,
  modelName: string,
  { speaks, isAuthorised, parameter }: HeaderContext,
  variables: Variables,
): ImportedHeaders {
  let betas: readonly string[] | undefined;
  const headers: Record<string, string> = {};
  if (Array.isArray(params.take('organization'))) {
    params.remark('organization', 'several make several upstreams: write one upstream for each');
  } else {
    const organization = parameter('organization');
    if (organization !== undefined) headers['openai-organization'] = variables.text(organization);
  }
  const extra = params.map('extra_headers');
  const matches = (pattern: string, name: string): boolean => new RegExp(pattern, 'i').test(name);
  for (const name of extra.unread) {
    const value = extra.text(name);
    if (value === undefined) continue;
    // The first branch that applies decides, so a header that cannot be set is never written as a secret.
    const instead = speaks === undefined ? undefined : insteadOfHeader(speaks, name);
    if (!matches(HEADER_NAMES, name) || matches(HEADER_NAMES_REJECTED, name)) {
      extra.remark(name, 'a header that cannot be set');
    } else if (instead !== undefined) {
      const namedBetas = name.toLowerCase() === 'anthropic-beta' ? betasOf(value) : undefined;
      if (namedBetas === undefined) extra.remark(name, `a header that the gateway writes itself: ${instead}`);
      betas = namedBetas ?? betas;
    } else if (speaks !== undefined && isAuthorised && AUTHORISING_HEADER.test(name)) {
      extra.remark(name, 'the upstream has a key or credentials, and takes one of the two');
    } else if (matches(HEADER_NAMES_SECRET, name)) {
      // `variableNameOf` ends all names with _API_KEY, which this header is not.
      const variableName = variableNameOf(`${modelName}_${name}`).replace(/_API_KEY$/, '');
      const reference = secretOf(extra, name, value, variableName, variables);
      if (reference !== undefined) headers[name] = reference;
    } else {
      headers[name] = variables.text(value);
    }
  }
  return { headers, betas };
}

/** Returns the beta features that the header names; undefined if the setting `betas` cannot have them all. */
function betasOf(value: string): readonly string[] | undefined {
  const betas = value.split(',').map((beta) => beta.trim());
  const areValid = betas.every((beta) => new RegExp(BETA_PATTERN).test(beta));
  return areValid && betas.length <= BETAS_MAX ? betas : undefined;
}
