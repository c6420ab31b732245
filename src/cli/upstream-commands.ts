/** `tollgate upstreams …`: the providers behind the models. What they need is loaded when one of them runs. */
import type { Command } from 'commander';
import type { UpstreamResetView } from '../admin/views.js';
import { withGateway } from './admin-client.js';
import { exampleText, nonEmpty, printJson, printLine, CommandError } from './output.js';
import { addConfigOption, addDataOptions, type DataOptions } from './data-options.js';

export function addUpstreamCommands(program: Command): void {
  const upstreams = program
    .command('upstreams')
    .description('Test the providers behind the models, and call those again that are left alone.');

  addConfigOption(
    upstreams
      .command('test')
      .description(
        'Call each upstream of the configuration once, with a request of a few tokens, and say what came back and what to do; exits with 1 where one does not serve.',
      ),
  )
    .argument('[model]', "the model's id or alias; all models by default", nonEmpty)
    .option('--json', 'print JSON')
    .addHelpText('after', exampleText('upstreams test', 'upstreams test gpt-4o-mini --json'))
    .action(test);

  addDataOptions(
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

function reset(model: string | undefined, options: DataOptions): Promise<void> {
  return withGateway(options, async (client) => {
    const body = model === undefined ? {} : { model };
    const view = (await client.call('POST', '/upstreams/reset', body)) as UpstreamResetView;
    if (options.json === true) printJson(view);
    else printLine(`All upstreams are called again: ${view.models.join(', ')}`);
  });
}

async function test(
  model: string | undefined,
  { config, json }: Pick<DataOptions, 'config' | 'json'>,
): Promise<void> {
  const [{ loadSettings }, { probeUpstreams }, { allServe, printProbes }] = await Promise.all([
    import('../config/load.js'),
    import('../gateway/upstream-probe.js'),
    import('./upstream-test-view.js'),
  ]);
  const views = await probeUpstreams(loadSettings({ config }).settings, model);
  if (views === undefined) throw new CommandError(`There is no model '${model}' in the configuration.`);
  if (json === true) printJson({ data: views });
  else await printProbes(views);
  if (!allServe(views)) process.exitCode = 1;
}
