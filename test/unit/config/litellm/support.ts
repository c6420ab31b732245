/** Imports files of LiteLLM, and loads what came of them. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { importLitellm } from '#src/config/litellm/import.js';
import { loadSettings } from '#src/config/load.js';

/**
 * What `config check` makes of the import; every variable that it names is set, those of addresses to one.
 */
export function loaded(folder: string, yaml: string, variables: readonly string[]) {
  writeFileSync(join(folder, 'tollgate.yaml'), yaml);
  const environment = Object.fromEntries(
    variables.map((name) => [
      name,
      name === 'AZURE_CANADA' ? 'https://ca.openai.azure.com' : `value-of-${name}`,
    ]),
  );
  return loadSettings({}, { environment, workingDirectory: folder }).settings;
}

/** The file's import and what is served. `lines`: the remarks with their paths. */
export function importedFile(t: Test, file: object) {
  const { yaml, remarks, variables, leftOut } = importLitellm(JSON.stringify(file), 'x');
  const { models } = loaded(t.testdir(), yaml, variables);
  return {
    models,
    upstreams: models.flatMap(({ upstreams }) => upstreams),
    lines: remarks.map(({ path, text }) => `${path}: ${text}`),
    variables,
    leftOut,
    yaml,
  };
}

/** The `litellm_params` of an entry, and the model's `name`. */
export interface Entry {
  readonly name?: string;
  readonly [parameter: string]: unknown;
}

/** Imports entries, each a model `m0`, `m1` … unless it names one. */
export function imported(t: Test, ...entries: readonly Entry[]) {
  return importedFile(t, {
    model_list: entries.map(({ name, ...own }, at) => ({
      model_name: name ?? `m${at}`,
      litellm_params: own,
    })),
  });
}
