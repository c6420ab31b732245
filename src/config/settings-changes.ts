/**
 * The values before and after a change of the settings, as text, for an operator who looks at it first. Secrets are not in
 * it. Pure; supervisor process.
 */
import type { Declaration } from './annotations.js';
import { settingsInForce } from './settings-in-force.js';

export interface SettingChange {
  /** As the difference names it: `models.gpt-4o-mini.price`, `plans.free (removed)`. */
  readonly setting: string;
  /** Null where there was none, and of a whole entry that is added or removed. */
  readonly before: string | null;
  /** The same of what will be; it says `(changed)` where the texts do not show what differs: a secret, or what a file holds. */
  readonly after: string | null;
}

/** Of maps and lists, which are told as one; a longer text is looked up in the file. */
const TEXT_CHARS_MAX = 300;

/** One for each of the paths that `differenceOf` gives, in their order. */
export function changesOf(
  declaration: Declaration,
  current: unknown,
  next: unknown,
  paths: readonly string[],
): SettingChange[] {
  const before = textsOf(declaration, current);
  const after = textsOf(declaration, next);
  return paths.map((setting) => {
    const [was, will] = [textAt(before, setting), textAt(after, setting)];
    return { setting, before: was, after: was !== null && was === will ? `${will} (changed)` : will };
  });
}

type Texts = ReadonlyMap<string, string>;

function textsOf(declaration: Declaration, settings: unknown): Texts {
  const entries = settingsInForce(declaration, settings, () => '');
  return new Map(entries.map(({ setting, value }) => [setting, value]));
}

/** Of one value, or of all that are below the path: `input: 0.15, output: 0.60`. */
function textAt(texts: Texts, path: string): string | null {
  const own = texts.get(path);
  if (own !== undefined) return own;
  const below = [...texts].flatMap(([name, value]) =>
    name.startsWith(`${path}.`) || name.startsWith(`${path}[`)
      ? [`${name.slice(path.length).replace(/^\./, '')}: ${value}`]
      : [],
  );
  if (below.length === 0) return null;
  const text = below.join(', ');
  return text.length <= TEXT_CHARS_MAX ? text : `${text.slice(0, TEXT_CHARS_MAX)}…`;
}
