/** `tollgate reload`: the running gateway reads its settings anew. */
import type { Command } from 'commander';
import type { ReloadView } from '../admin/views.js';
import { withAdminClient } from './admin-client.js';
import { exampleText, printJson, printLine } from './output.js';
import { addDataOptions, type DataOptions } from './data-options.js';

interface ReloadOptions extends DataOptions {
  readonly dryRun?: boolean;
  readonly restart?: boolean;
}

export function addReloadCommand(program: Command): void {
  addDataOptions(
    program
      .command('reload')
      .description(
        'Apply the settings anew without dropping a call: models, prices, plans, limits, keys of upstreams. A wrong file is refused whole; what needs a restart is named.',
      )
      .option('--dry-run', 'only tell what would change')
      .option(
        '--restart',
        'then replace the gateway processes one by one, for what needs a restart or a new version (processes: 2 or more, or sharing)',
      ),
  )
    .addHelpText('after', exampleText('reload --dry-run', 'reload --restart'))
    .action(reload);
}

/** Throws `Refusal` with every fault of the file. */
function reload({ dryRun = false, restart = false, ...place }: ReloadOptions): Promise<void> {
  return withAdminClient(place, async (client) => {
    const view = (await client.call('POST', '/reload', { dry_run: dryRun, restart })) as ReloadView;
    if (place.json === true) printJson(view);
    else printView(view);
  });
}

function printView({
  dry_run: dryRun,
  applied,
  restart_needed: restartNeeded,
  changes = [],
  replacing = 0,
}: ReloadView): void {
  const values = new Map(changes.map((change) => [change.setting, valuesOf(change)]));
  const tell = (what: string, path: string): void => printLine(`${what}  ${path}${values.get(path) ?? ''}`);
  for (const path of applied) tell(dryRun ? 'would apply' : 'applied', path);
  for (const path of restartNeeded) tell('needs a restart', path);
  if (replacing > 0)
    printLine(`replacing ${replacing} gateway processes, one by one; tollgate status shows them`);
  else if (applied.length === 0 && restartNeeded.length === 0) printLine('nothing has changed');
}

/** `: refuse -> clamp`; nothing of a whole entry that comes or goes. */
function valuesOf({ before, after }: NonNullable<ReloadView['changes']>[number]): string {
  return before === null && after === null ? '' : `: ${before ?? 'not set'} -> ${after ?? 'not set'}`;
}
