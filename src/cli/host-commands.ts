/** `tollgate hosts …`: the hosts that share accounts, limits and money. What they need is loaded when one of them runs. */
import type { Command } from 'commander';
import type { HostView } from '../admin/views.js';
import { listAll, withGateway } from './admin-client.js';
import {
  addConfirmation,
  confirm,
  type ConfirmationOptions,
  exampleText,
  nonEmpty,
  printJson,
  printLine,
  printTable,
  timeText,
  yesNo,
} from './output.js';
import { addDataOptions, type DataOptions } from './data-options.js';
import type { Column } from './table.js';

const COLUMNS: readonly Column<HostView>[] = [
  { title: 'id', align: 'left', text: ({ id }) => id },
  { title: 'this one', align: 'left', text: ({ self }) => yesNo(self) },
  { title: 'state', align: 'left', text: ({ state }) => state },
  {
    title: 'last heard',
    align: 'left',
    text: ({ last_heard: heard }) => (heard === null ? '-' : timeText(heard)),
  },
];

export function addHostCommands(program: Command): void {
  const hosts = program
    .command('hosts')
    .description('List the hosts that share with this one, and forget one that is gone.');

  addDataOptions(
    hosts
      .command('list')
      .description(
        'List hosts: heard in the last 20 s, silent (gone, or cut off), or awaited after the sharing server has lost data.',
      ),
  )
    .addHelpText('after', exampleText('hosts list'))
    .action((options: DataOptions) =>
      withGateway(options, async (client) => {
        const data = await listAll<HostView>(client, '/hosts', 'default');
        if (options.json) printJson({ data, next: null });
        else await printTable(COLUMNS, data, 'No host is known.');
      }),
    );

  addConfirmation(
    addDataOptions(
      hosts
        .command('forget')
        .description('Forget a host that will not come back, and ask before. One that is alive is refused.'),
    ),
  )
    .argument('<host>', "the host's id: see hosts list", nonEmpty)
    .addHelpText('after', exampleText('hosts forget 1f0c5a5e --yes'))
    .action(async (host: string, options: DataOptions & ConfirmationOptions) => {
      await confirm(
        `Forget host ${host}? The money it was lent is free again, and what it charged and did not tell is not counted.`,
        options,
      );
      await withGateway(options, async (client) => {
        const answer = (await client.call('DELETE', `/hosts/${encodeURIComponent(host)}`)) as { id: string };
        if (options.json) printJson(answer);
        else printLine(`Forgot ${answer.id}.`);
      });
    });
}
