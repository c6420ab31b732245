/**
 * Writes the pages of docs/ that the code knows best, each between its markers: settings, errors, roles,
 * commands, metrics, and the chart of the peers. `npm run docs`, after both builds; with `--check` it changes
 * nothing and exits with 1 if a page is not what it would write.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { format } from 'oxfmt';
import { ROOT } from '../dist/admin/addresses.js';
import { OTHER_ROUTES } from '../dist/admin/other-routes.js';
import { ADMIN_ROUTES } from '../dist/admin/routes.js';
import { createProgram } from '../dist/cli/program.js';
import { settingsDeclaration } from '../dist/config/schema.js';
import { appliesAt } from '../dist/config/settings-adoption.js';
import { ERROR_KINDS } from '../dist/core/errors.js';
import { ERROR_MEANINGS, REJECTION_MEANINGS } from '../dist/core/error-meanings.js';
import { ROLE_MEANINGS, ROLES } from '../dist/core/roles.js';
import { METRIC_FAMILIES } from '../dist/telemetry/exposition.js';
import { latencyChartOf, peersChartOf } from '../build/bench/load/chart.js';

const DOCS = fileURLToPath(new URL('../docs/', import.meta.url));
/** Runs in which gateways were measured side by side; the first is the one that README tells of. */
const runs = JSON.parse(readFileSync(new URL('../bench/peers/measured.json', import.meta.url), 'utf8'));

const style = JSON.parse(readFileSync(new URL('../.oxfmtrc.json', import.meta.url), 'utf8'));

/** Page, name of its markers, and what is between them. */
const PARTS = [
  ['configuration.md', 'settings', settingsPart],
  ['errors.md', 'errors', errorsPart],
  ['errors.md', 'reasons', reasonsPart],
  ['roles.md', 'roles', rolesPart],
  ['commands.md', 'commands', commandsPart],
  ['metrics.md', 'metrics', metricsPart],
  ['benchmarks.md', 'peers', peersPart],
  ['../README.md', 'peers', shortPeersPart],
];
const RETRY_WORDS = {
  no: 'no, not before something is changed',
  wait: 'yes, after the seconds of `Retry-After`, which is always sent',
  'back-off': 'yes, after growing pauses, or after `Retry-After` if it is sent',
};
const RETRY_SHORT = { no: 'no', wait: 'after `Retry-After`', 'back-off': 'with growing pauses' };
/** Options that many commands have: told once. */
const COMMON_OPTIONS = ['--config', '--data', '--admin-url', '--json'];

const pages = new Map();

for (const [page, name, part] of PARTS) {
  const text = pages.get(page) ?? readFileSync(DOCS + page, 'utf8');
  const marked = new RegExp(`(<!-- ${name}: written by npm run docs -->\n)[^]*?(<!-- end of ${name} -->)`);
  if (!marked.test(text)) throw new Error(`docs/${page} has no markers of ${name}`);
  pages.set(
    page,
    text.replace(marked, (_, start, end) => `${start}\n${part()}\n\n${end}`),
  );
}
for (const [page, text] of pages) {
  const path = DOCS + page;
  const { code, errors } = await format(path, text, { ...style, proseWrap: 'always' });
  if (errors.length > 0) throw new Error(`${path}: ${errors[0].message}`);
  write(path, code);
}
write(`${DOCS}images/peers.svg`, peersChartOf(runs[0]));
for (const { date, build, latencies } of runs) {
  if (latencies !== undefined)
    write(
      `${DOCS}images/added-latency.svg`,
      latencyChartOf(latencies, [`measured side by side on ${date}, build ${build}`]),
    );
}

function write(path, text) {
  if (!process.argv.includes('--check')) {
    writeFileSync(path, text);
  } else if (!existsSync(path) || text !== readFileSync(path, 'utf8')) {
    process.stderr.write(`${relative(process.cwd(), path)} is not what npm run docs writes\n`);
    process.exitCode = 1;
  }
}

function tableOf(titles, rows) {
  const line = (cells) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(titles), line(titles.map(() => '---')), ...rows.map(line)].join('\n');
}

function peersPart() {
  return runs.map(peersRunPart).join('\n\n');
}

function peersRunPart({ date, build, machine, load, contenders, latencies }) {
  const rangeText = ({ lowest, highest }) => (lowest === undefined ? '' : ` (${lowest}–${highest})`);
  const cost = (figures) =>
    figures === null
      ? ['fails', '']
      : [
          figures.cpuMicros.toLocaleString('en') + rangeText(figures),
          figures.requestsPerSecond.toLocaleString('en'),
        ];
  const rows = contenders.map(({ name, whole, stream, mebibytes }) => [
    name,
    ...cost(whole),
    `${whole.p50Ms.toLocaleString('en')} / ${whole.p99Ms.toLocaleString('en')}`,
    ...cost(stream),
    String(mebibytes),
  ]);
  const titles = [
    '',
    'whole: CPU µs',
    'requests/s',
    'p50 / p99 ms',
    'stream of 20: CPU µs',
    'requests/s',
    'MiB',
  ];
  return [
    `Measured on ${date} with build ${build}, in one run, on ${machine}: ${load}.`,
    tableOf(titles, rows),
    'What was on:',
    contenders.map(({ name, on }) => `- ${name}: ${on}`).join('\n'),
    ...(latencies === undefined ? [] : [latencyPart(latencies)]),
  ].join('\n\n');
}

function latencyPart(latencies) {
  const rows = latencies.map(({ title, name, p50Micros, p99Micros }) => [
    title,
    name,
    p50Micros.toLocaleString('en'),
    p99Micros.toLocaleString('en'),
  ]);
  return [
    'What each adds to the time of a call, over the upstream alone in the same round:',
    '<img src="images/added-latency.svg" width="760" alt="Added latency of gateways side by side" />',
    tableOf(['', '', 'p50 µs', 'p99 µs'], rows),
  ].join('\n\n');
}

/** What a small call costs, and how many times the own figure that is. */
function shortPeersPart() {
  const [{ date, contenders }] = runs;
  const own = contenders.find(({ kind }) => kind === 'own').whole.cpuMicros;
  const rows = contenders.map(({ name, kind, whole: { cpuMicros, requestsPerSecond } }) => [
    kind === 'floor' ? `${name} (the floor: checks nothing)` : name,
    cpuMicros.toLocaleString('en'),
    `${cpuMicros < 10 * own ? (cpuMicros / own).toFixed(1) : Math.round(cpuMicros / own)} ×`,
    requestsPerSecond.toLocaleString('en'),
  ]);
  return [
    `CPU time of a small call on ${date}, all threads and processes:`,
    tableOf(['', 'CPU µs', 'of ours', 'requests/s'], rows),
  ].join('\n\n');
}

function metricsPart() {
  return METRIC_FAMILIES.map(({ name, type, labels, help }) => {
    const named = labels.map((label) => `\`${label}\``).join(', ');
    return `- **\`${name}\`**, ${type}${named === '' ? '' : ` by ${named}`}.\n  ${help}`;
  }).join('\n');
}

/**
 * A section for each setting at the top that has settings below it; those that have none come first,
 * together.
 */
function settingsPart() {
  const { properties, required } = settingsDeclaration;
  const entries = Object.entries(properties);
  const isSection = ([, property]) => property.properties !== undefined || listOf(property) !== undefined;
  const single = entries.filter((entry) => !isSection(entry));
  const sections = entries.filter(isSection);
  return [
    '### The whole gateway',
    single.map(([name, property]) => settingEntry([name], property, required.includes(name))).join('\n'),
    ...sections.flatMap(([name, property]) => [
      `### \`${name}\``,
      property.description,
      entriesBelow([name], property, required.includes(name)).join('\n'),
    ]),
  ].join('\n\n');
}

/** What one entry of a list of maps holds; undefined for any other setting. */
function listOf({ items }) {
  return items?.properties === undefined ? undefined : items;
}

/** `path` as `appliesAt` takes it, with `[]` behind the name of a list. */
function entriesBelow(path, property, isWanted) {
  const declaration = listOf(property) ?? property;
  const own = listOf(property) === undefined ? [] : [settingEntry(path, property, isWanted)];
  const prefix = listOf(property) === undefined ? path : [...path.slice(0, -1), `${path.at(-1)}[]`];
  const below = Object.entries(declaration.properties).flatMap(([name, child]) => {
    const wanted = declaration.required?.includes(name) ?? false;
    return child.properties !== undefined || listOf(child) !== undefined
      ? entriesBelow([...prefix, name], child, wanted)
      : [settingEntry([...prefix, name], child, wanted)];
  });
  return [...own, ...below];
}

function settingEntry(path, property, isWanted) {
  const environment = property['x-environment'];
  const facts = [
    rangeOf(property),
    defaultOf(property, isWanted, path),
    ...(environment === undefined ? [] : [`\`${environment}\``]),
    appliesAt(path.map((name) => name.replace('[]', ''))),
  ];
  return `- **\`${path.join('.')}\`**: ${facts.join('; ')}.\n  ${property.description}`;
}

function defaultOf(property, isWanted, path) {
  const { default: preset } = property;
  const section = path.slice(0, -1).join('.');
  if (preset === undefined && !isWanted) return 'no default';
  if (preset === undefined) return section === '' ? 'must be set' : `must be set in \`${section}\``;
  if (typeof preset === 'object') return `default \`${JSON.stringify(preset)}\``;
  return `default ${typeof preset === 'number' ? numberOf(preset, property) : `\`${preset}\``}`;
}

/** Counts are grouped by thousands; what counts nothing, a port, is not. */
function numberOf(number, property) {
  return property['x-unit'] === undefined ? String(number) : number.toLocaleString('en');
}

function rangeOf(property) {
  if (property.enum !== undefined) return property.enum.map((word) => `\`${word}\``).join(' or ');
  if (property.type === 'boolean') return '`true` or `false`';
  if (property.type === 'array') {
    if (listOf(property) !== undefined) return 'list of maps';
    return property.items?.type === 'integer' ? 'list of whole numbers' : 'list of texts';
  }
  if (property.type === 'object') return 'map';
  const unit = property['x-unit'];
  if (property.type === 'string') return unit === undefined ? 'text' : `decimal text, ${unit}`;
  const { minimum, maximum } = property;
  const range = `${numberOf(minimum, property)} to ${numberOf(maximum, property)}`;
  return `whole number, ${range}${unit === undefined ? '' : ` ${unit}`}`;
}

function errorsPart() {
  const kinds = Object.entries(ERROR_KINDS).sort(([, a], [, b]) => a.status - b.status);
  const summary = tableOf(
    ['status', 'code', 'type', 'retry'],
    kinds.map(([code, { status, type }]) => [
      String(status),
      `[\`${code}\`](#${status}-${code})`,
      `\`${type}\``,
      RETRY_SHORT[ERROR_MEANINGS[code].retry],
    ]),
  );
  const sections = kinds.map(([code, { status }]) => {
    const { when, caller, operator, retry, retryExcept } = ERROR_MEANINGS[code];
    const words = RETRY_WORDS[retry];
    const lines = [
      `- When: ${when}`,
      `- Caller: ${caller}`,
      ...(operator === null ? [] : [`- Operator: ${operator}`]),
      `- Retry: ${retryExcept === undefined ? `${words}.` : `${words}, with one exception. ${retryExcept}`}`,
    ];
    return `### ${status} \`${code}\`\n\n${lines.join('\n')}`;
  });
  return [summary, ...sections].join('\n\n');
}

function reasonsPart() {
  return Object.entries(REJECTION_MEANINGS)
    .map(([reason, meaning]) => `- **\`${reason}\`**: ${meaning}`)
    .join('\n');
}

function rolesPart() {
  const meanings = Object.entries(ROLE_MEANINGS).map(([role, meaning]) => `- **\`${role}\`** ${meaning}.`);
  const routes = [
    ...ADMIN_ROUTES.map(({ method, path, roles }) => ({ method, path: `${ROOT}${path}`, roles })),
    ...OTHER_ROUTES,
  ];
  const row = ({ method, path, roles }) => [
    `\`${method} ${path}\``,
    ...ROLES.map((role) => (roles === 'anyone' || roles.includes(role) ? 'yes' : '')),
    roles === 'anyone' ? 'yes' : '',
  ];
  const titles = ['', ...ROLES, 'without a token'];
  return [meanings.join('\n'), tableOf(titles, routes.map(row))].join('\n\n');
}

function commandsPart() {
  const leaves = leavesOf(createProgram(), '');
  const summary = tableOf(
    ['command', 'what it does'],
    leaves.map(({ words, command }) => [`\`${words}\``, escaped(command.description())]),
  );
  const options = leaves.flatMap(({ name, command }) => {
    const own = command.options.filter(({ long, hidden }) => !hidden && !COMMON_OPTIONS.includes(long));
    if (own.length === 0) return [];
    const lines = own.map(({ flags, description, argChoices, defaultValue }) => {
      const preset = defaultValue === undefined ? '' : ` (default: ${defaultValue})`;
      const choices = argChoices === undefined ? '' : `: ${argChoices.join(', ')}`;
      return `- \`${flags}\`: ${escaped(description)}${choices}${preset}`;
    });
    return [`### \`${name}\`\n\n${lines.join('\n')}`];
  });
  return [summary, '## Options', ...options].join('\n\n');
}

function escaped(text) {
  return text.replaceAll('<', '&lt;');
}

/** Commands that do something, with what they must be given. */
function leavesOf(command, prefix) {
  return command.commands.flatMap((child) => {
    const name = prefix + child.name();
    if (child.commands.length > 0) return leavesOf(child, `${name} `);
    const inputs = child.registeredArguments.map((argument) =>
      argument.required ? `<${argument.name()}>` : `[${argument.name()}]`,
    );
    const wanted = child.options
      .filter(({ mandatory, hidden }) => mandatory && !hidden)
      .map(({ flags }) => flags);
    const options = wanted.filter((flags) => flags.includes('<') && !flags.startsWith('--by'));
    return [{ name, words: [name, ...inputs, ...options].join(' '), command: child }];
  });
}
