/**
 * For commands that send one request to the admin interface, or read one list, and print the response: most
 * files named …-commands.ts use this one. Others call `withAdminClient` (admin-client.ts). Process of
 * a command.
 *
 * Must hold: with `--json`, standard output is one JSON text (test/unit/cli: account-commands.test.ts,
 * key-commands.test.ts, group-commands.test.ts). A command on one item that has another kind's route does not
 * compile (ItemRoute).
 */
import type { Command } from 'commander';
import type { RouteViews } from '../admin/routes.js';
import {
  type AdminClient,
  type ClientOptions,
  type RequestInput,
  type RouteName,
  withAdminClient,
  withGateway,
} from './admin-client.js';
import { type ItemOf, type PagedRoute, readList } from './admin-lists.js';
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

/** The routes of one item that send exactly this view. One that makes a secret, to be shown once, is none. */
type ItemRoute<View> = {
  [Name in RouteName]: Name extends `${string}{${string}`
    ? [View, RouteViews[Name]] extends [RouteViews[Name], View]
      ? Name
      : never
    : never;
}[RouteName];

type DeletedView = RouteViews['DELETE /keys/{key}'];

/** Returns lines for standard error, such as what a command leaves as it is. `reference`: its argument. */
type RemarksOf = (client: AdminClient, reference: string) => Promise<readonly string[]>;

interface ItemCommandParts<Options> {
  /** Adds options, and arguments after the item's. */
  readonly configure?: (command: Command) => Command;
  /** Returns the request's body. `words`: the arguments after the item's. */
  readonly bodyOf?: (options: Options, words: readonly string[]) => object;
  /** Returns what is asked before. */
  readonly question?: (reference: string) => string;
  /** Called before the request; its lines are printed after the view. */
  readonly remarksOf?: RemarksOf | undefined;
}

/** Adds commands on one item, such as a key: each takes its id or name, and prints the view as `showView`. */
export class ItemCommands<View> {
  readonly #parent: Command;
  readonly #noun: string;
  readonly #argument: string;
  readonly #print: Print<View>;

  /** `noun` names the item in the help and in questions; `argument` is the help of the argument. */
  constructor(parent: Command, noun: string, argument: string, print: Print<View>) {
    this.#parent = parent;
    this.#noun = noun;
    this.#argument = argument;
    this.#print = print;
  }

  add<Options extends object>(
    name: string,
    route: ItemRoute<View>,
    description: string,
    examples: readonly string[],
    { configure, bodyOf, question, remarksOf }: ItemCommandParts<Options> = {},
  ): void {
    const command = addAdminCommand(this.#parent, name, description, ...examples);
    if (question !== undefined) addConfirmation(command);
    command.argument(`<${this.#noun}>`, this.#argument, parseNonEmpty);
    configure?.(command);
    command.action(async (id: string) => {
      const options = command.opts<AdminOptions & ConfirmationOptions & Options>();
      if (question !== undefined) await confirm(question(id), options);
      const body = bodyOf?.(options, command.args.slice(1));
      await withAdminClient(options, async (client) => {
        const remarks = (await remarksOf?.(client, id)) ?? [];
        // One of the routes stands for all of them: ItemRoute says that they send a View.
        const print = this.#print as Print<unknown>;
        await callAndPrint(client, options, route as 'GET /keys/{key}', { id, ...(body && { body }) }, print);
        for (const remark of remarks) printError(remark);
      });
    });
  }

  /** Adds the command `delete`, which asks first. */
  addDelete(
    route: ItemRoute<DeletedView>,
    description: string,
    example: string,
    remarksOf?: RemarksOf,
  ): void {
    const question = (reference: string): string => `Delete ${this.#noun} ${reference} permanently?`;
    const print = ({ id }: DeletedView): void => printLine(`Deleted ${id}.`);
    const commands = new ItemCommands<DeletedView>(this.#parent, this.#noun, this.#argument, print);
    commands.add('delete', route, description, [example], { question, remarksOf });
  }
}
