/**
 * Writes references to variables in place of the secrets of an entry of LiteLLM's `model_list`. deployment.ts
 * and headers.ts call it, in the process of `tollgate config import-litellm`.
 *
 * Must hold: no secret of the file is written (test/unit/config/litellm/import.test.ts).
 */
import { partedAtQuerySecrets, secretsInPath } from '../../core/secret-url.js';
import type { NativeSettings, Parameter, Provider } from './provider.js';
import type { ImportMap } from './remarks.js';
import { variableNameOf, type Variables } from './variables.js';

/** Returns the name of the variable for a secret that is no key: `of` is a header's or parameter's name. */
export function secretNameOf(modelName: string, of: string): string {
  return variableNameOf(`${modelName}_${of}`).replace(/_API_KEY$/, '');
}

/**
 * Returns a reference to a variable in place of the secret `value`, which `map` has under `name`. If the file
 * has the secret itself, the variable is called `variableName`, perhaps with a number at its end, and gets a
 * remark. Undefined for a word such as `none`, which stands for "no key".
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

/**
 * Returns the settings with references in place of secrets in the address's query and path, where some
 * providers and proxies take the key. A provider with a protocol of its own takes no query: `config check`
 * rejects the address later, but the secret must not be written either.
 */
export function withoutAddressSecrets(
  params: ImportMap,
  modelName: string,
  settings: Partial<NativeSettings>,
  variables: Variables,
): Partial<NativeSettings> {
  const { url } = settings;
  if (url === undefined || url.startsWith('${')) return settings; // the value of a variable is not in the file
  // `secretsInPath` returns each secret as it is written, which is in `url`, and decoded, which may not be.
  const path = url.replace(/^[^/]*\/\/[^/?]*/, '');
  const secrets = new Set(secretsInPath(path).filter((secret) => url.includes(secret)));
  const parts = partedAtQuerySecrets(url);
  if (secrets.size === 0 && parts.length === 1) return settings;
  const variableName = secretNameOf(modelName, 'api_base');
  // A word such as `not-needed` is no secret, and stays.
  const referenceTo = (secret: string): string =>
    secretOf(params, 'api_base', secret, variableName, variables) ?? secret;
  // Longer secrets are tried first, because a secret may be the start of another. All are replaced in one
  // pass, so that no secret is looked for in a reference.
  const longestFirst = [...secrets].sort((secret, other) => other.length - secret.length);
  const pattern = longestFirst.map((secret) => secret.replace(/[^\w]/g, '\\$&')).join('|');
  // What the query calls a secret is replaced where it stands, because a short one may be in the host too.
  const replaced = parts.map(({ text, isSecret }) => {
    if (isSecret) return referenceTo(text);
    return secrets.size === 0 ? text : text.replace(new RegExp(pattern, 'g'), referenceTo);
  });
  return { ...settings, url: replaced.join('') };
}

/**
 * Returns the upstream's key, as a reference to a variable; undefined if the upstream has none. Without an
 * `api_key` LiteLLM reads the provider's variable, so the reference is to that. `hasEntra`: the entry has
 * parameters of Entra. `parameter` reads the entry, or else its credential.
 */
export function keyOf(
  params: ImportMap,
  modelName: string,
  provider: Provider,
  hasEntra: boolean,
  parameter: Parameter,
  variables: Variables,
): string | undefined {
  const { speaks, variable, optionalVariable } = provider;
  const apiKey = parameter('api_key');
  if (apiKey !== undefined && speaks !== 'vertex') {
    // The provider's variable may be set already, with a key that a server elsewhere must not get. Each
    // upstream of Azure has an address.
    const address = parameter('api_base') ?? parameter('base_url');
    const isElsewhere = speaks !== 'azure' && address !== undefined;
    const ofProvider = isElsewhere ? undefined : variable;
    return secretOf(params, 'api_key', apiKey, ofProvider ?? variableNameOf(modelName), variables);
  }
  if (apiKey !== undefined) {
    params.remark('api_key', 'vertex takes no key: name credentials_file, or see docs/credentials.md');
    return undefined;
  }
  if (optionalVariable !== undefined)
    params.remark(
      'model',
      `no api_key is given, and LiteLLM takes one from ${optionalVariable} if that is set: set key if the server wants one`,
    );
  return variable === undefined || (speaks === 'azure' && hasEntra) ? undefined : `\${${variable}}`;
}
