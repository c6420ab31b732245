/**
 * Converts LiteLLM's `config.yaml` (docs.litellm.ai/docs/proxy/configs) to a `tollgate.yaml`: models with
 * their upstreams, and remarks on what could not be carried over. cli/config-command.ts calls
 * `importLitellm`, in the process of `tollgate config import-litellm`.
 *
 * Must hold (test/unit/config/litellm/import.test.ts):
 * - Every setting of the file is carried over or has a remark with its line.
 * - What is written passes `config check`, or has a remark too.
 * - All maps of the file are read before `remarkSections` and `remarkCredential`, which add a remark on each
 *   name that was not read until then.
 */
import { Document, type Node } from 'yaml';
import { ConfigError } from '../config-error.js';
import { MODELS_MAX, UPSTREAMS_MAX } from '../catalog-schema.js';
import { loadSettings } from '../load.js';
import { parseYaml } from '../yaml-source.js';
import {
  importAliases,
  type ImportedModel,
  importModel,
  MODEL_NAME,
  MODEL_NAME_RULE,
  withFallbacks,
} from './model.js';
import { importDeployment, timeoutOf, type Deployment, type DeploymentContext } from './deployment.js';
import { isTranslated, providerModelOf } from './provider.js';
import { escapedText, Variables } from './variables.js';
import {
  DROP_PARAMS_REASON,
  ImportMap,
  type Remark,
  remarkCredential,
  Remarks,
  remarkSections,
} from './remarks.js';

interface LitellmImport {
  /** A `tollgate.yaml` that passes `config check` once its variables are set; if not, remarks say why. */
  readonly yaml: string;
  /** In the order of their lines. */
  readonly remarks: readonly Remark[];
  /** The environment variables in `yaml`. */
  readonly variables: readonly string[];
  /** How many entries of `model_list` are in no model. A remark on each says why. */
  readonly leftOut: number;
}

/**
 * Converts the text of LiteLLM's file. Throws ConfigError, with lines that name `fileName`, if the text is no
 * YAML or none of its models can be carried over.
 */
export function importLitellm(text: string, fileName: string): LitellmImport {
  const source = parseYaml(text, fileName, { asPyYaml: true });
  const remarks = new Remarks(source);
  const file = new ImportMap(source.value, [], remarks);
  const entries = listOf(file, 'model_list', remarks);
  const router = file.map('router_settings');
  const litellm = file.map('litellm_settings');
  const credentials = credentialsOf(file, remarks);
  const context: DeploymentContext = {
    variables: new Variables(text, impliedVariables(entries, credentials)),
    credentials,
    timeoutMs: timeoutOf(router, 'timeout') ?? timeoutOf(litellm, 'request_timeout'),
    dropsParameters: litellm.flag('drop_params') ?? false,
  };
  const namedModels = withAliases(modelsOf(entries, context), router);
  const models = withFallbacks(namedModels, [router, litellm]);
  const imported = models.reduce((count, { upstreams }) => count + upstreams.length, 0);
  const isAnyUntranslated = models.some(({ upstreams }) =>
    upstreams.some(({ provider }) => !isTranslated(provider)),
  );
  if (context.dropsParameters && isAnyUntranslated) litellm.remark('drop_params', DROP_PARAMS_REASON);
  for (const values of context.credentials.values()) remarkCredential(values);
  remarkSections({ file, router, litellm });
  if (models.length === 0) {
    throw new ConfigError([
      ...remarks.list.map((remark) => remarkLine(fileName, remark)),
      `${fileName}: no model of model_list can be carried over`,
    ]);
  }
  const yaml = documentOf(models, fileName);
  const variables = [...new Set(variablesOf(yaml))];
  for (const problem of problemsOf(yaml, variables, models))
    file.remark('model_list', `config check will reject what was written: ${problem}`);
  return { yaml, remarks: remarks.list, variables, leftOut: entries.length - imported };
}

/** Returns the names of the variables in the written file. No text of the file has a line break. */
function variablesOf(yaml: string): string[] {
  return Array.from(yaml.matchAll(/\$(\$?)\{([^}\n]*)\}/g)).flatMap(([, secondDollar, name = '']) =>
    // `$${NAME}` stands for a plain `${NAME}`.
    secondDollar === '' && /^\w+$/.test(name) ? [name] : [],
  );
}

/** Returns what `config check` says of the written file if its variables have values that fit. */
function problemsOf(
  yaml: string,
  variables: readonly string[],
  models: readonly ImportedModel[],
): readonly string[] {
  const urls = models.flatMap(({ upstreams }) => upstreams.map(({ url }) => url));
  const environment = variables.map((name, index) => {
    const isAddress = urls.some((url) => url?.startsWith(`\${${name}}`));
    return [name, isAddress ? `https://host-${index}.example` : `value-${index}`] as const;
  });
  try {
    const processContext = { environment: Object.fromEntries(environment), workingDirectory: '/' };
    loadSettings({ config: 'tollgate.yaml', text: yaml }, processContext);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.problems;
  }
}

/** Returns a line such as `config.yaml:12: model_list[0].litellm_params.rpm: …`. */
export function remarkLine(fileName: string, { line, path, text }: Remark): string {
  return `${fileName}:${line}: ${path}: ${text}`;
}

/** Reads a list of maps; empty, with a remark, if the value is no list. */
function listOf(file: ImportMap, name: string, remarks: Remarks): ImportMap[] {
  const list = file.take(name) ?? [];
  if (!Array.isArray(list)) {
    file.remark(name, 'is no list');
    return [];
  }
  return list.map((item: unknown, index) => new ImportMap(item, [name, index], remarks));
}

/** Returns the variables from which LiteLLM takes a key if neither an entry nor its credential names one. */
function impliedVariables(
  entries: readonly ImportMap[],
  credentials: ReadonlyMap<string, ImportMap>,
): string[] {
  return entries.flatMap((entry) => {
    // A second ImportMap of the entry, so that no name counts as read in the one that is converted.
    const params = entry.map('litellm_params');
    const model = params.text('model');
    const credential = credentials.get(params.text('litellm_credential_name') ?? '');
    const key = params.text('api_key') ?? credential?.peek('api_key');
    if (model === undefined || key !== undefined) return [];
    const { provider } = providerModelOf(model, params.text('custom_llm_provider'));
    return provider?.variable ?? [];
  });
}

/** Returns the values of each credential by its name. If two have one name, LiteLLM reads the first. */
function credentialsOf(file: ImportMap, remarks: Remarks): Map<string, ImportMap> {
  const credentials = new Map<string, ImportMap>();
  for (const credential of listOf(file, 'credential_list', remarks)) {
    const name = credential.text('credential_name');
    const values = credential.map('credential_values');
    for (const unreadName of credential.unread) credential.remark(unreadName, 'has no counterpart');
    if (name === undefined) credential.remark('credential_name', 'missing: the credential was left out');
    else if (credentials.has(name))
      credential.remark('credential_name', 'one before it has this name: the credential was left out');
    else credentials.set(name, values);
  }
  return credentials;
}

function problemOfName(name: string | undefined): string {
  if (name === undefined) return `is missing: ${MODEL_NAME_RULE}`;
  return name.includes('*')
    ? 'Tollgate has no patterns of names, since each model has its price and its limits: write an entry for each model that callers may use'
    : MODEL_NAME_RULE;
}

/** Makes one model of all entries with the same name. An entry that is in no model has a remark. */
function modelsOf(entries: readonly ImportMap[], context: DeploymentContext): ImportedModel[] {
  const byName = new Map<string, Deployment[]>();
  for (const entry of entries) {
    const name = entry.text('model_name');
    if (name === undefined || !MODEL_NAME.test(name)) {
      entry.remark('model_name', `${problemOfName(name)}; the entry was left out`);
      continue;
    }
    const deployment = importDeployment(entry, name, context);
    for (const unreadName of entry.unread) entry.remark(unreadName, 'has no counterpart');
    if (deployment === undefined) continue;
    const deployments = byName.get(name);
    if (deployments !== undefined) deployments.push(deployment);
    else if (byName.size < MODELS_MAX) byName.set(name, [deployment]);
    else entry.remark('model_name', `left out: there are at most ${MODELS_MAX} models`);
  }
  const allDeployments = [...byName.values()].flatMap((deployments) => deployments.slice(0, UPSTREAMS_MAX));
  return Array.from(byName, ([name, deployments]) => importModel(name, deployments, allDeployments));
}

function withAliases(models: readonly ImportedModel[], router: ImportMap): ImportedModel[] {
  const ids = models.map(({ id }) => id);
  const aliases = importAliases(router, ids);
  return models.map((model) => ({ ...model, aliases: aliases.get(model.id) }));
}

/** Escapes `${` in names, because LiteLLM takes the names of models as they are, not from the environment. */
function withEscapedNames(model: ImportedModel): ImportedModel {
  const { id, aliases, fallbacks } = model;
  return {
    ...model,
    id: escapedText(id),
    aliases: aliases?.map(escapedText),
    fallbacks: fallbacks?.map(escapedText),
  };
}

/** LiteLLM's file has no plans, and Tollgate needs one. */
const PLAN = { id: 'default', requests_per_minute: 60, calls_per_day: 1_000, models: ['*'] };

/** Returns the text of the `tollgate.yaml`, with a comment at each model without a price. */
function documentOf(models: readonly ImportedModel[], fileName: string): string {
  const escapedModels = models.map(withEscapedNames);
  // Values that models share, such as lists, are written out: load.ts expands only few aliases.
  const options = { version: '1.2', schema: 'core', aliasDuplicateObjects: false } as const;
  const document = new Document({ models: escapedModels, plans: [PLAN] }, options);
  document.commentBefore =
    ` Made from ${fileName.replaceAll(/\s+/g, ' ')} by: tollgate config import-litellm\n` +
    ' Check with: tollgate config check';
  const comment = (list: 'models' | 'plans', index: number, text: string): void => {
    // The cast: `document` was made of lists of maps.
    (document.getIn([list, index]) as Node).commentBefore = ` ${text}`;
  };
  models.forEach(({ price }, index) => {
    if (price === undefined) comment('models', index, 'No price: its calls cost nothing.');
  });
  comment('plans', 0, 'Of no setting of LiteLLM: write your own limits.');
  return `${document.toString({ lineWidth: 0 }).trimEnd()}\n`;
}
