/** `tollgate upstreams …`: the providers behind the models. What they need is loaded when one of them runs. */
import type { Command } from 'commander';
import type { UpstreamResetView } from '../admin/upstream-routes.js';
import { withGateway } from './admin-client.js';
import { exampleText, nonEmpty, printJson, printLine } from './output.js';
import { addPlaceOptions, type PlaceOptions } from './place.js';

export function addUpstreamCommands(program: Command): void {
  const upstreams = program.command('upstreams').description('Call upstreams again that are left alone.');

  addPlaceOptions(
    upstreams
      .command('reset')
      .description(
        'Call upstreams again at once that are left alone because they failed or asked for a pause, in all workers and processes.',
      ),
  )
    .argument('[model]', "the model's id or alias; all models by default", nonEmpty)
    .addHelpText('after', exampleText('upstreams reset', 'upstreams reset gpt-4o-mini'))
    .action(reset);
}

function reset(model: string | undefined, options: PlaceOptions): Promise<void> {
  return withGateway(options, async (client) => {
    const body = model === undefined ? {} : { model };
    const view = (await client.call('POST', '/upstreams/reset', body)) as UpstreamResetView;
    if (options.json === true) printJson(view);
    else printLine(`All upstreams are called again: ${view.models.join(', ')}`);
  });
}
