/** Options that say where a command finds its gateway, its settings and its books. */
import { InvalidArgumentError, type Command } from 'commander';
import { nonEmpty } from './output.js';

export interface DataOptions {
  readonly config?: string;
  readonly data?: string;
  readonly adminUrl?: string;
  readonly json?: boolean;
}

/** Of commands that read the settings. */
export function addConfigOption(command: Command): Command {
  return command.option(
    '--config <file>',
    'configuration file (TOLLGATE_CONFIG; default: tollgate.yaml, where there is one)',
    nonEmpty,
  );
}

/** Of commands that look into the data directory. */
export function addStoreOptions(command: Command): Command {
  return addConfigOption(command).option(
    '--data <folder>',
    'folder of the books (TOLLGATE_DATA; default: that of the configuration)',
    nonEmpty,
  );
}

/** Of commands that speak to a gateway. */
export function addDataOptions(command: Command): Command {
  return addStoreOptions(command)
    .option(
      '--admin-url <url>',
      'admin interface of a gateway elsewhere (TOLLGATE_ADMIN_URL), with its token in TOLLGATE_ADMIN_TOKEN',
      originOf,
    )
    .option('--json', 'print JSON');
}

function originOf(text: string): string {
  const origin = adminOriginOf(text);
  if (origin === undefined) throw new InvalidArgumentError(ADMIN_URL_RULE);
  return origin;
}

export const ADMIN_URL_RULE = 'Want an address such as http://10.0.0.5:8081.';

/** Undefined where the text is no plain http:// or https:// address. */
export function adminOriginOf(text: string): string | undefined {
  if (!URL.canParse(text)) return undefined;
  const { protocol, username, password, pathname, search, hash, origin } = new URL(text);
  const isPlain = username + password + search + hash === '' && pathname === '/';
  return isPlain && (protocol === 'http:' || protocol === 'https:') ? origin : undefined;
}
