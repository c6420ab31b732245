/**
 * Commands about the models of the settings. `tollgate plans list` and `models list` show the catalogue,
 * `upstreams reset` and `cache clear` act on a running gateway: these call the admin interface. `upstreams
 * test` reads the settings and calls each upstream once itself. program.ts adds the commands;
 * config-command.ts calls `printProbes` for `config check --probe`.
 *
 * Must hold: no key of an upstream is printed; gateway/probe-diagnosis.ts leaves them out
 * (test/e2e/upstream-test.test.ts, test/e2e/secrets.test.ts). The tables:
 * test/unit/cli/catalog-commands.plans.test.ts.
 */
import type { Command } from 'commander';
import type { RouteViews } from '../admin/routes.js';
import type { ModelView, PlanView } from '../admin/views.js';
import { QUOTA_NAMES, type QuotaName } from '../core/quotas.js';
import type { ProbeView } from '../gateway/upstream-probe.js';
import { addAdminCommand, showView, showViewOfGateway } from './admin-command.js';
import { addConfigOption, type AdminOptions, exampleText, parseNonEmpty } from './options.js';
import { CommandError, EXIT_FAILED, printError, printJson, printLine, printTable } from './output.js';
import { amountText } from './quota-text.js';
import type { Column } from './table.js';

export function addCatalogCommands(program: Command): void {
  addList(program, 'plans', 'plans and their limits', ({ data }) =>
    printTable(PLAN_COLUMNS, data, 'There are no plans.'),
  );
  addList(program, 'models', 'models and their prices per million tokens', ({ data }) =>
    printTable(MODEL_COLUMNS, data, 'There are no models.'),
  );
}

/** `items` names what is listed, for the help. */
function addList<Name extends 'plans' | 'models'>(
  program: Command,
  name: Name,
  items: string,
  print: (view: RouteViews[`GET /${Name}`]) => Promise<void>,
): void {
  const parent = program.command(name).description(`List the ${items}.`);
  const description = `List the ${items}, as the settings in force have them.`;
  addAdminCommand(parent, 'list', description, `${name} list`).action((options: AdminOptions) =>
    // They are in the settings, so that a new file can be looked at before the first start.
    showView(options, `GET /${name}`, {}, print, { missingStore: 'catalogue' }),
  );
}

const PLAN_COLUMNS: readonly Column<PlanView>[] = [
  { title: 'PLAN', text: ({ id }) => id },
  { title: 'PER MINUTE', text: (plan) => String(plan.requests_per_minute), align: 'right' },
  { title: 'PER DAY', text: (plan) => String(plan.calls_per_day), align: 'right' },
  { title: 'AT A TIME', text: (plan) => String(plan.calls_in_flight), align: 'right' },
  { title: 'MAX TOKENS', text: ({ max_tokens }) => String(max_tokens ?? '–'), align: 'right' },
  { title: 'BODY BYTES', text: ({ body_bytes }) => String(body_bytes), align: 'right' },
  { title: 'QUOTAS', text: quotasText, cut: true },
  { title: 'MODELS', text: ({ models }) => models.join(', '), cut: true },
];

/** Returns the quotas of a plan that have no column, then the rules for single models. */
function quotasText(plan: PlanView): string {
  const { models_limits: rules } = plan;
  const texts = [
    ...limitTexts({ ...plan, requests_per_minute: null, calls_per_day: null, calls_in_flight: null }),
    ...rules.map(({ model, limits }) => `${model}: ${limitTexts(limits).join(' and ')}`),
  ];
  return texts.join(', ') || '–';
}

/** Returns the quotas that have a limit, in words. Null and a missing quota both mean no limit. */
function limitTexts(limits: Readonly<Partial<Record<QuotaName, number | string | null>>>): string[] {
  return QUOTA_NAMES.flatMap((name) => {
    const limit = limits[name] ?? null;
    return limit === null ? [] : [`${amountText(limit)} ${name.replaceAll('_', ' ')}`];
  });
}

const MODEL_COLUMNS: readonly Column<ModelView>[] = [
  { title: 'MODEL', text: ({ id }) => id },
  { title: 'OWNED BY', text: ({ owned_by }) => owned_by, cut: true },
  { title: 'INPUT', text: ({ price }) => price.input, align: 'right' },
  { title: 'CACHED INPUT', text: ({ price }) => price.cached_input, align: 'right' },
  { title: 'CACHE WRITE', text: ({ price }) => price.cache_write, align: 'right' },
  { title: '1H', text: ({ price }) => price.cache_write_1h, align: 'right' },
  { title: 'OUTPUT', text: ({ price }) => price.output, align: 'right' },
  { title: 'REASONING', text: ({ price }) => price.reasoning, align: 'right' },
  { title: 'CALL', text: ({ price }) => price.call, align: 'right' },
  { title: 'LONG PROMPTS', text: longPricesText },
  { title: 'MAX OUTPUT TOKENS', text: (model) => String(model.max_output_tokens), align: 'right' },
  { title: 'ALIASES', text: ({ aliases }) => aliases.join(', '), cut: true },
];

/** Returns input and output of each long price. `--json` prints all its prices. */
function longPricesText({ price: { long } }: ModelView): string {
  const texts = long.map(({ above, input, output }) => `${input} / ${output} above ${amountText(above)}`);
  return texts.join(', ') || '–';
}

const MODEL_TEXT = "the model's id or alias; all models by default";

export function addUpstreamCommands(program: Command): void {
  const upstreams = program
    .command('upstreams')
    .description('Test the providers behind the models, and call those again that are left alone.');

  addConfigOption(
    upstreams
      .command('test')
      .description(
        'Call each upstream of the configuration once, with a request of a few tokens, and say what came back and what to do; exits with 1 if one does not serve.',
      ),
  )
    .argument('[model]', MODEL_TEXT, parseNonEmpty)
    .option('--json', 'print JSON')
    .addHelpText('after', exampleText('upstreams test', 'upstreams test gpt-4o-mini --json'))
    .action(testUpstreams);

  addAdminCommand(
    upstreams,
    'reset',
    'Call upstreams again at once that are left alone because they failed or asked for a pause, in all workers and processes.',
    'upstreams reset',
    'upstreams reset gpt-4o-mini',
  )
    .argument('[model]', MODEL_TEXT, parseNonEmpty)
    .action((model: string | undefined, options: AdminOptions) =>
      showViewOfGateway(options, 'POST /upstreams/reset', { body: { model } }, ({ models }) =>
        printLine(`All upstreams are called again: ${models.join(', ')}`),
      ),
    );
}

export function addCacheCommands(program: Command): void {
  const cache = program.command('cache').description('Remove responses of the response cache.');
  addAdminCommand(
    cache,
    'clear',
    'Remove the responses of the response cache, of one model or all, in memory and on disk, in all processes.',
    'cache clear',
    'cache clear --model gpt-4o-mini',
  )
    .option('--model <model>', MODEL_TEXT, parseNonEmpty)
    .action(({ model, ...options }: AdminOptions & { readonly model?: string }) =>
      showViewOfGateway(options, 'POST /cache/clear', { body: { model } }, ({ models }) =>
        printLine(`No response is cached any more of: ${models.join(', ')}`),
      ),
    );
}

async function testUpstreams(
  model: string | undefined,
  { config, json }: Pick<AdminOptions, 'config' | 'json'>,
): Promise<void> {
  // Loaded only here, so that `--help` and the other commands need not wait for these modules.
  const [{ loadSettings }, { probeUpstreams }, { ConfigError, namesUnsetVariable }] = await Promise.all([
    import('../config/load.js'),
    import('../gateway/upstream-probe.js'),
    import('../config/config-error.js'),
  ]);
  let settings;
  try {
    ({ settings } = loadSettings({ config }));
  } catch (error) {
    if (!(error instanceof ConfigError) || !error.problems.some(namesUnsetVariable)) throw error;
    throw new ConfigError([...error.problems, OWN_VARIABLES]);
  }
  const views = await probeUpstreams(settings, model);
  // The settings have no such model.
  if (views === undefined)
    throw new CommandError(`There is no model '${model}' in the configuration: see models list.`);
  if (json === true) printJson({ data: views });
  else await printProbes(views);
  if (!views.every(({ ok }) => ok)) process.exitCode = EXIT_FAILED;
}

const PROBE_COLUMNS: readonly Column<ProbeView>[] = [
  { title: 'MODEL', cut: true, text: ({ model }) => model },
  { title: 'UPSTREAM', text: ({ upstream }) => upstream },
  { title: 'SERVES', text: ({ ok }) => (ok ? 'yes' : 'NO') },
  {
    title: 'FIRST BYTE',
    align: 'right',
    text: ({ first_byte_ms: ms }) => (ms === null ? '-' : `${ms} ms`),
  },
  { title: 'ANSWERED BY', cut: true, text: ({ answered_model: name }) => name ?? '-' },
  {
    title: 'USAGE',
    text: ({ usage_reported: reported }) => (reported === null ? '-' : reported ? 'reported' : 'none'),
  },
  { title: 'WHAT CAME BACK', cut: true, text: ({ result }) => result },
];

/** A service of systemd, or a container, has variables that the operator's shell lacks. */
const OWN_VARIABLES =
  'The settings were read with the variables of this shell. A gateway may have others: run the command with the same.';

/** Prints the table that `upstreams test` and `config check --probe` end with. */
export async function printProbes(views: readonly ProbeView[]): Promise<void> {
  await printTable(PROBE_COLUMNS, views, 'There is no upstream.');
  for (const { model, upstream, advice } of views)
    if (advice !== null) printLine(`${model} at ${upstream}: ${advice}`);
  if (!views.every(({ ok }) => ok)) printError(OWN_VARIABLES);
}
