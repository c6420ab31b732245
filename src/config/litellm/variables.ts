/**
 * Secrets and other values that LiteLLM takes from the environment, as references of Tollgate's file. A secret that is
 * written inline is never carried over: it gets the name of a variable that the operator is to set. Main thread of a
 * command.
 */

const ENVIRONMENT = 'os.environ/';
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** What stands for "no key" in examples of local servers. */
const NO_KEY = /^(?:none|null|empty|no-?key)$/i;

export class Variables {
  /** Of inline secrets: which variable was given to each. */
  readonly #inline = new Map<string, string>();
  /** Variables that mean something already, and so are given to no inline secret. */
  readonly #meant: ReadonlySet<string>;

  /** `implied` are the variables that LiteLLM reads where an entry names no key. */
  constructor(fileText: string, implied: Iterable<string>) {
    const named = Array.from(
      fileText.matchAll(/os\.environ\/([A-Za-z_][A-Za-z0-9_]*)/g),
      ([, name]) => name!,
    );
    this.#meant = new Set([...named, ...implied]);
  }

  /** A value that is no secret: `${NAME}` for a reference, else the text as a plain one. */
  text(value: string): string {
    return referenceOf(value) ?? value.replaceAll('${', () => '$${');
  }

  /**
   * A secret as a reference; `inline` tells that it was written out, and under which variable it is wanted instead. Undefined
   * for a word that says that there is no key.
   */
  secret(value: string, wanted: string): { reference: string; inline: string | undefined } | undefined {
    const reference = referenceOf(value);
    if (reference !== undefined) return { reference, inline: undefined };
    if (NO_KEY.test(value)) return undefined;
    const known = this.#inline.get(value);
    const name = known ?? this.#freeName(wanted);
    this.#inline.set(value, name);
    return { reference: `\${${name}}`, inline: name };
  }

  #freeName(wanted: string): string {
    const taken = new Set([...this.#meant, ...this.#inline.values()]);
    let name = wanted;
    for (let number = 2; taken.has(name); number++) name = `${wanted}_${number}`;
    return name;
  }
}

/** `GPT_4O_API_KEY` of the model `gpt-4o`. */
export function variableNameOf(model: string): string {
  const name = model.toUpperCase().replace(/[^A-Z0-9]+/g, '_');
  return `${/^[A-Z_]/.test(name) ? '' : 'MODEL_'}${name}_API_KEY`;
}

function referenceOf(value: string): string | undefined {
  if (!value.startsWith(ENVIRONMENT)) return undefined;
  const name = value.slice(ENVIRONMENT.length).trim();
  return VARIABLE.test(name) ? `\${${name}}` : undefined;
}
