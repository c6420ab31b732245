/**
 * Helpers for commands that make one request to the admin interface and print its response. The files of cli/
 * that add commands call it. A command that makes several requests calls `withAdminClient` (admin-client.ts)
 * itself. The commands have the tests, such as test/unit/cli/account-commands.test.ts.
 */
import type { Command } from 'commander';
import { type AdminClient, listAll, withAdminClient } from './admin-client.js';
import {
  addConfirmation,
  addDataOptions,
  confirm,
  type ConfirmationOptions,
  type DataOptions,
  exampleText,
  nonEmpty,
} from './options.js';
import { printJson, printLine } from './output.js';

/** Adds a command that calls the admin interface. Its help ends with the examples, after `tollgate`. */
export function addAdminCommand(
  parent: Command,
  name: string,
  description: string,
  ...examples: readonly string[]
): Command {
  return addDataOptions(parent.command(name).description(description)).addHelpText(
    'after',
    exampleText(...examples),
  );
}

/**
 * Calls the admin interface and prints the view that it responds with: with `--json` as it came, else by
 * `print`, whose parameter has the type that the route declares. Rejects with CommandError.
 */
export function showView(
  options: DataOptions,
  method: Parameters<AdminClient['call']>[0],
  path: string,
  body: object | undefined,
  print: (view: never) => Promise<void> | void,
): Promise<void> {
  return withAdminClient(options, async (client) => {
    const view = await client.call(method, path, body);
    if (options.json === true) printJson(view);
    else await print(view as never);
  });
}

/** The same for a list, with all of its pages. `path` may have a query. */
export function showList(
  options: DataOptions,
  path: string,
  print: (views: never) => Promise<void>,
): Promise<void> {
  return withAdminClient(options, async (client) => {
    const data = await listAll(client, path);
    if (options.json === true) printJson({ data, next: null });
    else await print(data as never);
  });
}

/** Adds the command `delete`, which asks first. `noun` is what it deletes; `pathOf` gives its path. */
export function addDeleteCommand(
  parent: Command,
  noun: string,
  { description, argument, example }: { description: string; argument: string; example: string },
  pathOf: (reference: string) => string,
): void {
  addConfirmation(addAdminCommand(parent, 'delete', description, example))
    .argument(`<${noun}>`, argument, nonEmpty)
    .action(async (reference: string, options: DataOptions & ConfirmationOptions) => {
      await confirm(`Delete ${noun} ${reference} permanently?`, options);
      await showView(options, 'DELETE', pathOf(reference), undefined, ({ id }: { id: string }) =>
        printLine(`Deleted ${id}.`),
      );
    });
}
