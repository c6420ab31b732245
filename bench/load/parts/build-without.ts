/**
 * Copies of a build in which a part of the gateway does nothing, to see what the part costs. The shipped
 * program has no such mode: in the copy, methods of classes are replaced, by some lines of text behind the
 * class.
 */
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

/** By class, what its methods are instead. */
type Methods = Readonly<Record<string, string>>;
type Replacements = Readonly<Record<string, Methods>>;

const NOTHING = '() => undefined';
/** As esbuild writes it. */
const END_OF_CLASS = '\n};\n';

const PARTS = {
  /**
   * The minute, the day, places for calls and the balance: neither checked nor counted, and nothing is
   * charged.
   */
  limits: {
    Window: { take: '() => ({ admitted: true, remaining: 1, resetWallMs: 0, mayAskForMore: false })' },
    Calls: { admit: NOTHING, settle: '() => ({ charged: 0n, uncovered: 0n })', release: '() => true' },
  },
  /** What a call has cost, on its way to the books, and with it the rows of usage. */
  books: { JournalWriter: { append: '() => 0' } },
  /** What listeners and workers record of calls in shared memory, and looking at the clock for it. */
  metrics: {
    RecordedCall: { bodyRead: NOTHING, responseBegun: NOTHING, charged: NOTHING, report: NOTHING },
    ListenerMetrics: {
      callBegun: NOTHING,
      callEnded: NOTHING,
      countRequest: NOTHING,
      countCall: NOTHING,
      countRejection: NOTHING,
    },
    UpstreamMetrics: {
      attemptBegun: NOTHING,
      attemptEnded: NOTHING,
      countFailure: NOTHING,
      setBreaker: NOTHING,
    },
    TopAccounts: { count: NOTHING },
  },
} as const satisfies Record<string, Replacements>;

export type Part = keyof typeof PARTS;

/** Copies what runs of the build in `folder` to `copy`, which is made, and puts `parts` out of work there. */
export function copyBuildWithout(parts: readonly Part[], folder: string, copy: string): void {
  mkdirSync(copy);
  for (const name of ['dist', 'package.json'])
    cpSync(join(folder, name), join(copy, name), { recursive: true });
  symlinkSync(resolve(folder, 'node_modules'), join(copy, 'node_modules'));
  const files = bundledFiles(copy);
  for (const part of parts) {
    for (const [className, methods] of Object.entries<Methods>(PARTS[part]))
      replace(className, methods, files);
  }
}

function bundledFiles(folder: string): string[] {
  const { files } = JSON.parse(readFileSync(join(folder, 'dist/bundle.json'), 'utf8')) as { files: string[] };
  return files.map((file) => join(folder, 'dist', file));
}

/**
 * In each file that has the class, because the main thread has a copy of its own (scripts/bundle.mjs). Behind
 * the class: so it is in force before any other code of the file runs.
 */
function replace(className: string, methods: Methods, files: readonly string[]): void {
  const begin = `\nvar ${className} = class `;
  const holders = files.filter((file) => readFileSync(file, 'utf8').includes(begin));
  if (holders.length === 0) throw new Error(`${className} is in no file of the build`);
  for (const file of holders) {
    const text = readFileSync(file, 'utf8');
    const from = text.indexOf(begin);
    const end = text.indexOf(END_OF_CLASS, from) + END_OF_CLASS.length;
    const lines = Object.entries(methods).map(([method, code]) => {
      // A method that has got another name would go on with its work.
      if (!text.slice(from, end).includes(`\n  ${method}(`))
        throw new Error(`${className} has no method ${method}`);
      return `${className}.prototype.${method} = ${code};\n`;
    });
    writeFileSync(file, text.slice(0, end) + lines.join('') + text.slice(end));
  }
}
