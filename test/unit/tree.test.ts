/**
 * The tree itself: which folder may import which, that imports make no circle, where atomics may be used, how
 * files are named, what is banned.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import t from 'tap';

const ROOT = process.cwd();
const SRC = join(ROOT, 'src');

/** Each folder and what it may import besides itself; an arrow that is not here points the wrong way. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  core: [],
  config: ['core'],
  protocol: ['core'],
  telemetry: ['core'],
  'call-log': ['core', 'telemetry'],
  http1: ['core'],
  providers: ['core', 'protocol', 'http1'],
  doors: ['core', 'protocol', 'providers'],
  ledger: ['core'],
  registry: ['core', 'config', 'protocol', 'telemetry', 'ledger'],
  store: ['core', 'config', 'protocol', 'telemetry', 'ledger', 'registry'],
  channel: ['core', 'config', 'protocol', 'telemetry', 'ledger', 'registry'],
  sharing: ['core', 'config', 'telemetry', 'ledger', 'registry', 'store', 'channel'],
  upstream: [
    'core',
    'config',
    'protocol',
    'telemetry',
    'ledger',
    'registry',
    'channel',
    'http1',
    'providers',
    'doors',
  ],
  request: ['core', 'protocol', 'doors', 'telemetry', 'ledger', 'registry', 'channel'],
  admin: ['core', 'config', 'protocol', 'telemetry', 'call-log', 'ledger', 'registry', 'store'],
  console: ['core', 'admin', 'telemetry'],
  mock: ['core', 'protocol'],
  gateway: [
    'core',
    'config',
    'protocol',
    'telemetry',
    'call-log',
    'ledger',
    'registry',
    'store',
    'channel',
    'sharing',
    'upstream',
    'http1',
    'providers',
    'doors',
    'request',
    'admin',
  ],
  supervisor: ['core', 'config', 'telemetry', 'gateway'],
  cli: [
    'core',
    'config',
    'registry',
    'store',
    'admin',
    'gateway',
    'supervisor',
    'mock',
    'telemetry',
    'call-log',
    'ledger',
  ],
};

/** Shared words are touched where their layout is. */
const ATOMICS_FOLDERS = ['ledger', 'channel', 'telemetry'];
const ATOMICS_FILES = [
  'core/spsc-ring.ts',
  'registry/key-table.ts',
  'request/body-budget.ts',
  'upstream/left-calls.ts',
  'upstream/worker-budget.ts',
];

const LINE_BANS: readonly { readonly pattern: RegExp; readonly instead: string }[] = [
  { pattern: /\bFIXME\b/, instead: 'mend it, or a TODO that names what it waits for' },
  { pattern: /\bDate\.now\(\)/, instead: 'a Clock (core/clock.ts)' },
  { pattern: /\bfrom 'uwebsockets'/, instead: "its real name, 'uWebSockets.js'" },
  {
    pattern: /^import (?!type ).* from 'lmdb'|\('lmdb'\)|\.transaction(Sync)?\(/,
    instead: 'an Environment (store/environment.ts): opening beside a writer loses what it writes',
  },
  { pattern: /\bnew Function\b|\beval\(/, instead: 'code: generation from strings is off' },
];
/** The mock is a tool of its own and its figures are compared with those of other processes. */
const DATE_NOW_ALLOWED = ['core/clock.ts', 'mock/mock-delivery.ts'];
const LMDB_ALLOWED = ['store/environment.ts'];

interface SourceFile {
  readonly path: string;
  readonly folder: string;
  readonly lines: readonly string[];
}

const files: SourceFile[] = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((path) => /\.c?ts$/.test(path))
  .map((path) => ({
    path,
    folder: path.split('/')[0]!,
    lines: readFileSync(join(SRC, path), 'utf8').split('\n'),
  }));

void t.test('every folder is on the map', (t) => {
  t.same([...new Set(files.map(({ folder }) => folder))].sort(), Object.keys(MAY_IMPORT).sort());
  t.end();
});

void t.test('imports point one way', (t) => {
  for (const { path, folder, lines } of files) {
    for (const line of lines) {
      const target = /(?:from|import\() ?'(\.[^']+)'/.exec(line)?.[1];
      if (target === undefined) continue;
      const imported = relative(SRC, resolve(SRC, dirname(path), target)).split('/')[0]!;
      const allowed = imported === folder || MAY_IMPORT[folder]!.includes(imported);
      if (!allowed) t.fail(`${path} imports ${imported}, which ${folder} must not`);
    }
  }
  t.end();
});

/** In a circle no file can be understood or changed without the others. Types bind as values do. */
void t.test('no import leads back to where it began', (t) => {
  const paths = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((path) =>
    /\.tsx?$/.test(path),
  );
  const known = new Set(paths);
  const importsOf = (path: string): string[] => {
    const targets = readFileSync(join(SRC, path), 'utf8').matchAll(
      /(?:\bfrom|\bimport\(|^import)\s*'(\.[^']+)\.js'/gm,
    );
    return Array.from(targets, ([, target]) => relative(SRC, resolve(SRC, dirname(path), target!)))
      .map((file) => (known.has(`${file}.tsx`) ? `${file}.tsx` : `${file}.ts`))
      .filter((file) => known.has(file));
  };
  const imports = new Map(paths.map((path) => [path, importsOf(path)]));
  const done = new Set<string>();
  const way: string[] = [];
  const visit = (path: string): void => {
    if (way.includes(path)) t.fail([...way.slice(way.indexOf(path)), path].join(' → '));
    else if (!done.has(path)) {
      way.push(path);
      imports.get(path)!.forEach(visit);
      way.pop();
      done.add(path);
    }
  };
  paths.forEach(visit);
  t.ok([...imports.values()].flat().length > 2_000, 'imports were found');
  t.end();
});

void t.test('atomics stay where shared words are laid out', (t) => {
  for (const { path, folder, lines } of files) {
    if (ATOMICS_FOLDERS.includes(folder) || ATOMICS_FILES.includes(path)) continue;
    for (const [at, line] of lines.entries()) {
      if (/\bAtomics\.\w+\(/.test(line)) t.fail(`${path}:${at + 1} uses Atomics`);
    }
  }
  t.end();
});

void t.test('names and first lines', (t) => {
  for (const { path, lines } of files) {
    t.match(
      path,
      /^(?:[a-z0-9-]+\/)+[a-z0-9-]+(?:\.(?:thread|worker|d))?\.c?ts$/,
      `${path} is a kebab-case noun`,
    );
    const first = lines[0]!.startsWith('#!') ? lines[1]! : lines[0]!;
    t.match(first, /^\/\*\*/, `${path} begins with what it is for`);
  }
  t.end();
});

void t.test('what follows a provider names its page and when it was read', (t) => {
  const protocols = files.filter(({ path }) =>
    /^providers\/(?:anthropic|azure|bedrock|gemini|vertex)\//.test(path),
  );
  t.ok(protocols.length > 25);
  for (const { path, lines } of protocols) {
    const header = lines.slice(0, lines.indexOf(' */')).join(' ');
    t.match(header, /\b20\d\d-\d\d\b/, `${path}: year and month`);
    t.match(header, /"[A-Z]|https:\/\/|ai\.google\.dev\//, `${path}: a page`);
  }
  t.end();
});

void t.test('what is banned is not there', (t) => {
  for (const { path, lines } of files) {
    for (const [at, line] of lines.entries()) {
      for (const { pattern, instead } of LINE_BANS) {
        if (!pattern.test(line)) continue;
        if (pattern.source.includes('Date') && DATE_NOW_ALLOWED.includes(path)) continue;
        if (pattern.source.includes('lmdb') && LMDB_ALLOWED.includes(path)) continue;
        t.fail(`${path}:${at + 1}: ${pattern.source}; use ${instead}`);
      }
    }
  }
  t.end();
});
