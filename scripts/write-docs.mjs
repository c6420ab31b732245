/**
 * Writes the pages of docs/ that the code knows best, each between its markers: settings, errors, commands, metrics. `npm run docs`,
 * after a build; with `--check` it changes nothing and exits with 1 if a page is not what it would write.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { format, resolveConfig } from 'prettier';
import { createProgram } from '../dist/cli/program.js';
import { settingsDeclaration } from '../dist/config/schema.js';
import { ERROR_KINDS } from '../dist/core/errors.js';
import { ERROR_MEANINGS } from '../dist/core/error-meanings.js';
import { METRIC_FAMILIES } from '../dist/telemetry/exposition.js';

const DOCS = fileURLToPath(new URL('../docs/', import.meta.url));

/** Page, name of its markers, and what is between them. */
const TABLES = [
  ['configuration.md', 'settings', settingsTable],
  ['errors.md', 'errors', errorsTable],
  ['commands.md', 'commands', commandsTable],
  ['metrics.md', 'metrics', metricsTable],
];

for (const [page, name, table] of TABLES) {
  const path = DOCS + page;
  const before = readFileSync(path, 'utf8');
  const marked = new RegExp(`(<!-- ${name}: written by npm run docs -->\n)[^]*?(<!-- end of ${name} -->)`);
  if (!marked.test(before)) throw new Error(`docs/${page} has no markers of ${name}`);
  const filled = before.replace(marked, (_, start, end) => `${start}\n${table()}\n\n${end}`);
  const after = await format(filled, { ...(await resolveConfig(path)), parser: 'markdown' });
  if (!process.argv.includes('--check')) {
    writeFileSync(path, after);
  } else if (after !== before) {
    process.stderr.write(`docs/${page} is not what npm run docs writes\n`);
    process.exitCode = 1;
  }
}

function tableOf(titles, rows) {
  const line = (cells) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(titles), line(titles.map(() => '---')), ...rows.map(line)].join('\n');
}

function metricsTable() {
  const rows = METRIC_FAMILIES.map(({ name, type, labels, help }) => [
    `\`${name}\``,
    type,
    labels.map((label) => `\`${label}\``).join(', '),
    help,
  ]);
  return tableOf(['metric', 'type', 'labels', 'meaning'], rows);
}

function settingsTable() {
  const rows = [];
  walk(settingsDeclaration, '', rows);
  return tableOf(['setting', 'default', 'range', 'meaning'], rows);
}

function walk(declaration, prefix, rows) {
  for (const [name, property] of Object.entries(declaration.properties ?? {})) {
    const path = prefix === '' ? name : `${prefix}.${name}`;
    const required = declaration.required?.includes(name) ?? false;
    const isSection = property.properties !== undefined;
    const isListOfMaps = property.items?.properties !== undefined;
    if (!isSection) rows.push(settingRow(isListOfMaps ? `${path}[]` : path, property, required));
    if (isSection) walk(property, path, rows);
    if (isListOfMaps) walk(property.items, `${path}[]`, rows);
  }
}

function settingRow(path, property, required) {
  const environment = property['x-environment'];
  const meaning = property.description + (environment === undefined ? '' : ` \`${environment}\``);
  return [`\`${path}\``, defaultOf(property, required), rangeOf(property), meaning];
}

function defaultOf(property, required) {
  const { default: preset } = property;
  if (preset === undefined) return required ? '_wanted_' : '–';
  if (Array.isArray(preset) || typeof preset === 'object') return `\`${JSON.stringify(preset)}\``;
  return typeof preset === 'number' ? numberOf(preset, property) : `\`${preset}\``;
}

/** Counts are grouped by thousands; what counts nothing, a port, is not. */
function numberOf(number, property) {
  return property['x-unit'] === undefined ? String(number) : number.toLocaleString('en');
}

function rangeOf(property) {
  if (property.enum !== undefined) return property.enum.map((word) => `\`${word}\``).join(', ');
  if (property.type === 'boolean') return '`true`, `false`';
  if (property.minimum === undefined && property.maximum === undefined) return property['x-unit'] ?? '';
  const { minimum, maximum } = property;
  const unit = property['x-unit'] === undefined ? '' : ` ${property['x-unit']}`;
  return `${numberOf(minimum, property)} – ${numberOf(maximum, property)}${unit}`;
}

function errorsTable() {
  const rows = Object.entries(ERROR_KINDS).map(([code, { status, type }]) => {
    const { when, remedy } = ERROR_MEANINGS[code];
    return [String(status), `\`${code}\``, `\`${type}\``, when, remedy];
  });
  return tableOf(['status', 'code', 'type', 'when', 'what helps'], rows);
}

function commandsTable() {
  return tableOf(
    ['command', 'what it does'],
    leavesOf(createProgram(), '').map(({ words, command }) => [
      `\`${words}\``,
      command.description().replaceAll('<', '&lt;'),
    ]),
  );
}

/** Commands that do something, with what they must be given. */
function leavesOf(command, prefix) {
  return command.commands.flatMap((child) => {
    if (child.commands.length > 0) return leavesOf(child, `${prefix}${child.name()} `);
    const inputs = child.registeredArguments.map((argument) =>
      argument.required ? `<${argument.name()}>` : `[${argument.name()}]`,
    );
    const wanted = child.options
      .filter(({ mandatory, hidden }) => mandatory && !hidden)
      .map(({ flags }) => flags);
    const options = wanted.filter((flags) => flags.includes('<') && !flags.startsWith('--by'));
    return [{ words: [prefix + child.name(), ...inputs, ...options].join(' '), command: child }];
  });
}
