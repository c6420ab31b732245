/** `${NAME}` in the strings of a configuration file. Pure; any thread. */

/** `$${` is a literal `${`; a name is what a shell would take. */
const REFERENCE = /\$(\$?)\{([^}]*)\}/g;
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;

export type Environment = Readonly<Record<string, string | undefined>>;

export interface Interpolation {
  readonly text: string;
  /** How many variables were put in. */
  readonly references: number;
  readonly unset: readonly string[];
  /** What stands in `${…}` and cannot be a variable's name. */
  readonly malformed: readonly string[];
}

/** The text with each variable's value in its place. Cost: one pass. */
export function interpolate(raw: string, environment: Environment): Interpolation {
  const unset: string[] = [];
  const malformed: string[] = [];
  let references = 0;
  const text = raw.replace(REFERENCE, (whole: string, escape: string, name: string) => {
    if (escape !== '') return whole.slice(1);
    if (!VARIABLE.test(name)) {
      malformed.push(name);
      return whole;
    }
    references++;
    const value = environment[name];
    if (value === undefined) unset.push(name);
    return value ?? whole;
  });
  return { text, references, unset, malformed };
}
