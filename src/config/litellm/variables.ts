/**
 * Rewrites references to variables, from LiteLLM's form to Tollgate's, and makes references of secrets that
 * the file has inline. import.ts makes the Variables of an import, for all files of this folder. Pure.
 *
 * Must hold: as secrets.ts (test/unit/config/litellm/import.test.ts).
 */

/** What LiteLLM's file has before the name of a variable. */
const ENVIRONMENT = 'os.environ/';
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Words that stand for "no key" where people call servers of their own: some clients demand a key. */
const NO_KEY =
  /^(?:sk-)?(?:none|null|empty|dummy|fake|placeholder|anything|ollama|lm-?studio|x+|not?-?(?:api-?)?(?:key|needed|required)(?:-required)?)$/i;

/**
 * Rewrites values that LiteLLM takes from the environment as references of Tollgate's file. A secret that is
 * written inline is never carried over: it becomes a reference to a variable that the operator has to set.
 */
export class Variables {
  /** The variable of each inline secret. Equal secrets have one variable. */
  readonly #inline = new Map<string, string>();
  /** Variables that are in use already, with other values, so that no inline secret may take their names. */
  readonly #used: ReadonlySet<string>;

  /** `implied`: the variables that LiteLLM reads if an entry names no key. */
  constructor(fileText: string, implied: Iterable<string>) {
    const inFile = Array.from(
      fileText.matchAll(/os\.environ\/([A-Za-z_][A-Za-z0-9_]*)/g),
      ([, name]) => name!,
    );
    this.#used = new Set([...inFile, ...implied]);
  }

  /** Rewrites a value that is no secret: `${NAME}` for a reference, otherwise the plain text. */
  text(value: string): string {
    return referenceOf(value) ?? escapedText(value);
  }

  /**
   * Rewrites a secret as a reference. If the file has the secret itself, `inline` is the variable that the
   * operator has to set: `variableName`, with a number if that is in use. Undefined for a word of NO_KEY.
   */
  secret(value: string, variableName: string): { reference: string; inline: string | undefined } | undefined {
    const reference = referenceOf(value);
    if (reference !== undefined) return { reference, inline: undefined };
    if (NO_KEY.test(value)) return undefined;
    const name = this.#inline.get(value) ?? this.#freeName(variableName);
    this.#inline.set(value, name);
    return { reference: `\${${name}}`, inline: name };
  }

  #freeName(variableName: string): string {
    const used = new Set([...this.#used, ...this.#inline.values()]);
    let name = variableName;
    for (let number = 2; used.has(name); number++) name = `${variableName}_${number}`;
    return name;
  }
}

/** Returns the name of the variable for a model's key: `GPT_4O_API_KEY` for `gpt-4o`. */
export function variableNameOf(model: string): string {
  const name = model.toUpperCase().replace(/[^A-Z0-9]+/g, '_');
  return `${/^[A-Z_]/.test(name) ? '' : 'MODEL_'}${name}_API_KEY`;
}

/** Returns the text as Tollgate's file must have it: what looks like a reference to a variable is escaped. */
export function escapedText(value: string): string {
  return value.replace(/\$\{[^}]*\}/g, (reference) => `$${reference}`);
}

/** Returns `${NAME}` for `os.environ/NAME`; undefined for other text. */
function referenceOf(value: string): string | undefined {
  if (!value.startsWith(ENVIRONMENT)) return undefined;
  const name = value.slice(ENVIRONMENT.length).trim();
  return VARIABLE.test(name) ? `\${${name}}` : undefined;
}
