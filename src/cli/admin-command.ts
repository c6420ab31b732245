/**
 * For commands that send one request to the admin interface, or read one list, and print the response: most
 * files named …-commands.ts call these functions. Others call `withAdminClient` (admin-client.ts). Process of
 * a command.
 *
 * Must hold: with `--json`, standard output is one JSON text (test/unit/cli: account-commands.test.ts,
 * key-commands.test.ts, group-commands.test.ts).
 */
import type { Command } from 'commander';
import type { RouteViews } from '../admin/routes.js';
import {
  type AdminClient,
  type ClientOptions,
  type ItemOf,
  type PagedRoute,
  readList,
  type RequestInput,
  type RouteName,
  withAdminClient,
  withGateway,
} from './admin-client.js';
import {
  addConfirmation,
  addAdminOptions,
  confirm,
  type ConfirmationOptions,
  type AdminOptions,
  exampleText,
  parseNonEmpty,
} from './options.js';
import { printError, printJson, printLine } from './output.js';

/** Adds a command that calls the admin interface. `examples`, without `tollgate`, are the end of its help. */
export function addAdminCommand(
  parent: Command,
  name: string,
  description: string,
  ...examples: readonly string[]
): Command {
  return addAdminOptions(parent.command(name).description(description)).addHelpText(
    'after',
    exampleText(...examples),
  );
}

/** Prints one view, or those of a list. */
type Print<View> = (view: View) => Promise<void> | void;

/**
 * Sends the request and prints the view that comes back: with `--json` unchanged, otherwise by `print`.
 * Without a gateway the routes work on the store. Rejects as `withAdminClient` does, and if the request is
 * rejected.
 */
export function showView<Name extends RouteName>(
  options: AdminOptions,
  route: Name,
  input: RequestInput<Name>,
  print: Print<RouteViews[Name]>,
  clientOptions?: ClientOptions, // By default no store is made, and a response may take 30 s.
): Promise<void> {
  return withAdminClient(
    options,
    (client) => callAndPrint(client, options, route, input, print),
    clientOptions,
  );
}

/** Lines for standard error, such as what a command leaves as it is. `reference`: its argument. */
type RemarksOf = (client: AdminClient, reference: string) => Promise<readonly string[]>;

/** As `showView`. `remarksOf` is called before the request, and its lines are printed after the view. */
export function showViewAndRemarks<Name extends RouteName>(
  options: AdminOptions,
  route: Name,
  input: RequestInput<Name>,
  print: Print<RouteViews[Name]>,
  remarksOf: (client: AdminClient) => Promise<readonly string[]>,
): Promise<void> {
  return withAdminClient(options, async (client) => {
    const remarks = await remarksOf(client);
    await callAndPrint(client, options, route, input, print);
    for (const remark of remarks) printError(remark);
  });
}

/** As `showView`, for a command that needs a running gateway. Rejects as `withGateway` does. */
export function showViewOfGateway<Name extends RouteName>(
  options: AdminOptions,
  route: Name,
  input: RequestInput<Name>,
  print: Print<RouteViews[Name]>,
): Promise<void> {
  return withGateway(options, (client) => callAndPrint(client, options, route, input, print));
}

async function callAndPrint<Name extends RouteName>(
  client: AdminClient,
  { json }: AdminOptions,
  route: Name,
  input: RequestInput<Name>,
  print: Print<RouteViews[Name]>,
): Promise<void> {
  const view = await client.call(route, input);
  if (json === true) printJson(view);
  else await print(view);
}

/** As `showView`, for a list that has pages: reads all pages, and prints them as one. */
export function showList<Name extends PagedRoute>(
  options: AdminOptions,
  route: Name,
  input: RequestInput<Name>,
  print: Print<readonly ItemOf<Name>[]>,
): Promise<void> {
  return withAdminClient(options, async (client) => {
    const list = await readList(client, route, input);
    if (options.json === true) printJson(list);
    else await print(list.data);
  });
}

/**
 * Says on standard error that a list with the options --limit, --from and --to may go on, which neither a
 * table nor CSV shows. `next`: the cursor of the items that were not read; null if all were.
 */
export function printIfMore({
  data,
  next,
}: {
  readonly data: readonly unknown[];
  readonly next: string | null;
}): void {
  if (next === null) return;
  printError(
    `There may be more than these ${data.length}: --limit shows more of them, --from and --to others.`,
  );
}

/**
 * Adds the command `delete`, which asks first, on standard error. `noun` names what is deleted; `argument` is
 * the help of its argument.
 * `remarksOf`: as for `showViewAndRemarks`; none by default.
 */
export function addDeleteCommand(
  parent: Command,
  noun: string,
  { description, argument, example }: { description: string; argument: string; example: string },
  route: Extract<RouteName, `DELETE ${string}`>,
  remarksOf: RemarksOf = () => Promise.resolve([]),
): void {
  addConfirmation(addAdminCommand(parent, 'delete', description, example))
    .argument(`<${noun}>`, argument, parseNonEmpty)
    .action(async (reference: string, options: AdminOptions & ConfirmationOptions) => {
      await confirm(`Delete ${noun} ${reference} permanently?`, options);
      await showViewAndRemarks(
        options,
        route,
        { id: reference },
        ({ id }) => printLine(`Deleted ${id}.`),
        (client) => remarksOf(client, reference),
      );
    });
}
