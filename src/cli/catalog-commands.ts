/** `tollgate plans list` and `tollgate models list`: what the settings in force offer. */
import type { Command } from 'commander';
import type { ModelView, PlanView } from '../admin/views.js';
import { withAdminClient } from './admin-client.js';
import { exampleText, printJson, printTable } from './output.js';
import { addDataOptions, type DataOptions } from './data-options.js';
import type { Column } from './table.js';

export function addCatalogCommands(program: Command): void {
  addList(program, 'plans', 'plans and their limits', PLAN_COLUMNS);
  addList(program, 'models', 'models and their prices per million tokens', MODEL_COLUMNS);
}

function addList<View>(
  program: Command,
  word: 'plans' | 'models',
  what: string,
  columns: readonly Column<View>[],
): void {
  const group = program.command(word).description(`List the ${what}.`);
  addDataOptions(group.command('list').description(`List the ${what}, as the settings in force have them.`))
    .addHelpText('after', exampleText(`${word} list`))
    .action((options: DataOptions) =>
      withAdminClient(options, async (client) => {
        const list = (await client.call('GET', `/${word}`)) as { data: View[] };
        if (options.json) printJson(list);
        else await printTable(columns, list.data, `There are no ${word}.`);
      }),
    );
}

const PLAN_COLUMNS: readonly Column<PlanView>[] = [
  { title: 'PLAN', text: ({ id }) => id, align: 'left' },
  { title: 'PER MINUTE', text: (plan) => String(plan.requests_per_minute), align: 'right' },
  { title: 'PER DAY', text: (plan) => String(plan.calls_per_day), align: 'right' },
  { title: 'AT A TIME', text: (plan) => String(plan.calls_in_flight), align: 'right' },
  { title: 'MAX TOKENS', text: ({ max_tokens }) => String(max_tokens ?? '–'), align: 'right' },
  { title: 'BODY BYTES', text: ({ body_bytes }) => String(body_bytes), align: 'right' },
  { title: 'MODELS', text: ({ models }) => models.join(', '), align: 'left', cut: true },
];

const MODEL_COLUMNS: readonly Column<ModelView>[] = [
  { title: 'MODEL', text: ({ id }) => id, align: 'left' },
  { title: 'OWNED BY', text: ({ owned_by }) => owned_by, align: 'left', cut: true },
  { title: 'INPUT', text: ({ price }) => price.input, align: 'right' },
  { title: 'CACHED INPUT', text: ({ price }) => price.cached_input, align: 'right' },
  { title: 'OUTPUT', text: ({ price }) => price.output, align: 'right' },
  { title: 'MAX OUTPUT TOKENS', text: (model) => String(model.max_output_tokens), align: 'right' },
  { title: 'ALIASES', text: ({ aliases }) => aliases.join(', '), align: 'left', cut: true },
];
