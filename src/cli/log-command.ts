/** `tollgate log`: what the running gateway logs, seen and changed until it is reloaded. */
import { InvalidArgumentError, Option, type Command } from 'commander';
import { LOG_LEVELS, type LogLevel, type LogChange, type LogView } from '../telemetry/log.js';
import { withGateway } from './admin-client.js';
import { exampleText, printFields, printJson } from './output.js';
import { addDataOptions, type DataOptions } from './data-options.js';

interface LogOptions extends DataOptions {
  readonly level?: LogLevel;
  readonly accessLog?: 'on' | 'off';
  readonly samplePercent?: number;
}

export function addLogCommand(program: Command): void {
  addDataOptions(
    program
      .command('log')
      .description(
        'Show or change what the running gateway logs. Changes hold until the next reload or restart, which go by the settings.',
      )
      .addOption(new Option('--level <level>', 'least severe events').choices(LOG_LEVELS))
      .addOption(new Option('--access-log <state>', 'a line for each chat call').choices(['on', 'off']))
      .option('--sample-percent <n>', 'share of the calls that went well in the access log', percentOf),
  )
    .addHelpText('after', exampleText('log --level warn', 'log --access-log on --sample-percent 10'))
    .action(log);
}

function percentOf(text: string): number {
  if (!/^\d{1,3}$/.test(text) || Number(text) > 100)
    throw new InvalidArgumentError('Want a whole number from 0 to 100.');
  return Number(text);
}

function log({ level, accessLog, samplePercent, ...place }: LogOptions): Promise<void> {
  const change: LogChange = {
    ...(level === undefined ? {} : { level }),
    ...(accessLog === undefined ? {} : { access_log: accessLog === 'on' }),
    ...(samplePercent === undefined ? {} : { sample_percent: samplePercent }),
  };
  return withGateway(place, async (client) => {
    const changes = Object.keys(change).length > 0;
    const view = (await (changes
      ? client.call('PUT', '/log', change)
      : client.call('GET', '/log'))) as LogView;
    if (place.json === true) printJson(view);
    else await printView(view);
  });
}

async function printView(view: LogView): Promise<void> {
  await printFields([
    ['level', view.level],
    ['access log', view.access_log ? 'on' : 'off'],
    ['sample percent', String(view.sample_percent)],
  ]);
}
