/**
 * Converts the headers of an entry of LiteLLM's `model_list`. deployment.ts calls `headersOf`, in the process
 * of `tollgate config import-litellm`.
 *
 * Must hold (test/unit/config/litellm/headers.test.ts, test/unit/config/litellm/import.test.ts):
 * - No name and no value that `config check` rejects is carried over: the patterns are those of
 *   upstream-schema.ts and provider-settings.ts. (import.ts runs the check, which reports too many headers.)
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
  HEADER_VALUES,
} from '../upstream-schema.js';
import type { Parameter } from './provider.js';
import type { ImportMap } from './remarks.js';
import { secretOf, secretNameOf } from './secrets.js';
import type { Variables } from './variables.js';

interface ImportedHeaders {
  readonly headers: Readonly<Record<string, string>>;
  /** The beta features that the header `anthropic-beta` names; undefined without the header. */
  readonly betas: readonly string[] | undefined;
}

interface HeaderContext {
  /** The provider whose own protocol the upstream speaks; undefined if it is OpenAI's. */
  readonly speaks: ProviderName | undefined;
  /** Whether a setting gives the upstream a credential (`credentialSettingOf`). */
  readonly isAuthorised: boolean;
  /** Reads a parameter of the entry, or of its credential. */
  readonly parameter: Parameter;
}

/**
 * Returns the entry's `organization` and `extra_headers` as headers and beta features. `modelName`: the
 * model's name for callers, with which names of variables begin.
 */
export function headersOf(
  params: ImportMap,
  modelName: string,
  context: HeaderContext,
  variables: Variables,
): ImportedHeaders {
  let betas: readonly string[] | undefined;
  /** By the names in lower case: what an operator wrote as name, and the value. */
  const headers = new Map<string, readonly [name: string, value: string]>();
  // Adds the header that `map` has under `name`, or a remark on it.
  const add = (map: ImportMap, name: string, header: string, value: string): void => {
    const variableName = secretNameOf(modelName, header);
    const isThere = headers.has(header.toLowerCase());
    const problem = isThere ? 'a header that is given twice' : problemOf(header, value, context);
    if (problem !== undefined) {
      map.remark(name, problem);
      return;
    }
    const text = matches(HEADER_NAMES_SECRET, header)
      ? secretOf(map, name, value, variableName, variables)
      : variables.text(value);
    if (text === undefined) map.remark(name, 'a word that stands for no secret: the header was left out');
    else headers.set(header.toLowerCase(), [header, text]);
  };
  const extra = params.map('extra_headers');
  for (const name of extra.unread) {
    const value = extra.text(name);
    const { speaks } = context;
    const isOfBetas = name.toLowerCase() === 'anthropic-beta' && speaks && insteadOfHeader(speaks, name);
    const namedBetas = isOfBetas ? betasOf(value ?? '') : undefined;
    if (namedBetas !== undefined) betas = namedBetas;
    else if (value !== undefined) add(extra, name, name, value);
  }
  if (Array.isArray(params.take('organization')))
    params.remark('organization', 'several make several upstreams: write one upstream for each');
  else {
    // Last, so that the same header of `extra_headers` goes first.
    const organization = context.parameter('organization');
    if (organization !== undefined) add(params, 'organization', 'openai-organization', organization);
  }
  return { headers: Object.fromEntries(headers.values()), betas };
}

/** Returns why the header cannot be carried over; undefined if it can. A secret's value is not checked. */
function problemOf(name: string, value: string, context: HeaderContext): string | undefined {
  if (!matches(HEADER_NAMES, name) || matches(HEADER_NAMES_REJECTED, name))
    return 'a header that cannot be set';
  const instead = context.speaks && insteadOfHeader(context.speaks, name);
  if (instead !== undefined) return `a header that the gateway writes itself: ${instead}`;
  if (context.speaks !== undefined && context.isAuthorised && AUTHORISING_HEADER.test(name))
    return 'the upstream has a key or credentials, and takes one of the two';
  return matches(HEADER_NAMES_SECRET, name) || matches(HEADER_VALUES, value)
    ? undefined
    : 'wanted is printable ASCII text of at most 4096 characters';
}

function matches(pattern: string, text: string): boolean {
  return new RegExp(pattern, 'i').test(text);
}

/** Returns the beta features that the header names; undefined if the setting `betas` cannot have them all. */
function betasOf(value: string): readonly string[] | undefined {
  const betas = value.split(',').map((beta) => beta.trim());
  const areValid = betas.every((beta) => new RegExp(BETA_PATTERN).test(beta));
  return areValid && betas.length <= BETAS_MAX ? betas : undefined;
}
