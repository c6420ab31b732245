/**
 * What commands share that print one view of the admin interface, or one list of views. Most files that add
 * commands call these functions. A command that needs more calls `withAdminClient` (admin-client.ts) itself.
 *
 * Must hold: with `--json`, standard output is one JSON text (test/unit/cli/account-commands.test.ts,
 * test/unit/cli/key-commands.test.ts, test/unit/cli/group-commands.test.ts).
 */
import type { Command } from 'commander';
import {
  type AdminClient,
  type ClientOptions,
  listAll,
  withAdminClient,
  withGateway,
} from './admin-client.js';
import {
  addConfirmation,
  addDataOptions,
  confirm,
  type ConfirmationOptions,
  type DataOptions,
  exampleText,
  parseNonEmpty,
} from './options.js';
import { printJson, printLine } from './output.js';

/** Adds a command that calls the admin interface. `examples`, without `tollgate`, are the end of its help. */
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
 * Prints one view, or the views of a list. The parameter has the type that the route declares (admin/views.ts
 * and the routes). Neither compiler nor program checks this type: `never` lets any function fit.
 */
type Print = (view: never) => Promise<void> | void;

/** Method, path and body of a request. */
type CallArguments = Parameters<AdminClient['call']>;

/**
 * Calls the admin interface and prints the view of the response: with `--json` as it came, else by `print`.
 * Rejects as `withAdminClient` does.
 */
export function showView(
  options: DataOptions,
  request: CallArguments,
  print: Print,
  clientOptions?: ClientOptions,
): Promise<void> {
  return withAdminClient(options, (client) => callAndPrint(client, options, request, print), clientOptions);
}

/** As `showView`, for a command that needs a running gateway. Rejects as `withGateway` does. */
export function showViewOfGateway(options: DataOptions, request: CallArguments, print: Print): Promise<void> {
  return withGateway(options, (client) => callAndPrint(client, options, request, print));
}

async function callAndPrint(
  client: AdminClient,
  { json }: DataOptions,
  request: CallArguments,
  print: Print,
): Promise<void> {
  const view = await client.call(...request);
  if (json === true) printJson(view);
  else await print(view as never);
}

/** As `showView`, for a list. Reads all pages before it prints the first line. `path` may have a query. */
export function showList(options: DataOptions, path: string, print: Print): Promise<void> {
  return withAdminClient(options, async (client) => {
    const data = await listAll(client, path);
    if (options.json === true) printJson({ data, next: null });
    else await print(data as never);
  });
}

/**
 * Adds the command `delete`, which asks before it deletes. `noun` names what is deleted. `pathOf` returns the
 * encoded path of the route, which responds with a DeletedView (admin/views.ts).
 */
export function addDeleteCommand(
  parent: Command,
  noun: string,
  { description, argument, example }: { description: string; argument: string; example: string },
  pathOf: (reference: string) => string,
): void {
  addConfirmation(addAdminCommand(parent, 'delete', description, example))
    .argument(`<${noun}>`, argument, parseNonEmpty)
    .action(async (reference: string, options: DataOptions & ConfirmationOptions) => {
      await confirm(`Delete ${noun} ${reference} permanently?`, options);
      await showView(options, ['DELETE', pathOf(reference)], ({ id }: { id: string }) =>
        printLine(`Deleted ${id}.`),
      );
    });
}
