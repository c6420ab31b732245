/** The console's style sheets and its components know the same classes and custom properties. */
import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';

const FOLDER = 'src/console/';
const textOf = (ending: RegExp): string =>
  readdirSync(FOLDER, { recursive: true, encoding: 'utf8' })
    .filter((path) => ending.test(path))
    .map((path) => readFileSync(`${FOLDER}${path}`, 'utf8'))
    .join('\n');
const sheets = textOf(/\.css$/).replace(/\/\*[^]*?\*\//g, '');
const components = textOf(/\.tsx?$/);
const found = (text: string, pattern: RegExp): Set<string> =>
  new Set([...text.matchAll(pattern)].map((match) => match[1]!));

/** Classes by which tests find an element, and which look like what is around them. */
const WITHOUT_STYLE = ['count', 'loading'];

void t.test('each class of a style sheet is one of some component', (t) => {
  const classes = found(sheets, /\.([a-z][\w-]*)/gi);
  t.ok(classes.size > 100);
  for (const name of classes) t.match(components, new RegExp(`(?<![\\w-])${name}(?![\\w-])`), name);
  t.end();
});

void t.test('each class that a component has as it stands is one of a style sheet', (t) => {
  const classes = found(sheets, /\.([a-z][\w-]*)/gi);
  const texts = [...found(components, /\bclass="([^"]+)"/g)].flatMap((text) => text.split(' '));
  t.ok(texts.length > 50);
  const unknown = new Set(texts.filter((name) => !classes.has(name)));
  t.same([...unknown].sort(), WITHOUT_STYLE);
  t.end();
});

void t.test('each custom property that is read is set', (t) => {
  const set = found(`${sheets} ${components}`, /(--[a-z][\w-]*)'?:/g);
  for (const name of found(sheets, /var\((--[\w-]+)/g)) t.ok(set.has(name), name);
  for (const name of found(components, /'(--[a-z]+(?:-\d)?)'/g)) t.ok(set.has(name), name);
  t.end();
});
