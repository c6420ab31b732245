/**
 * `gateway.json` in the data directory tells commands where the running gateway listens.
 * gateway/admin-service.ts writes the file when the admin port is open and removes it at the end, on the main
 * thread. Commands read it (cli/admin-client.ts).
 *
 * The file is validated by hand: TypeBox takes 0.2 s of CPU to load, and `tollgate health` runs often.
 *
 * Must hold: no reader sees half a file, and no gateway removes a file that it finds with another's pid. A
 * command trusts the file only if its writer still responds, because a killed gateway leaves its file.
 */
import { readFileSync, renameSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

interface GatewayAddress {
  /** The process id of the gateway that has the admin interface. */
  readonly pid: number;
  readonly adminHost: string;
  readonly adminPort: number;
}

/** How long a gateway may take to respond; then it counts as dead. On one host a response takes 1 ms. */
const PROBE_TIMEOUT_MS = 2_000;
/**
 * While the interface passes from one process of a group to the next, for some milliseconds the process that
 * responds may not be the one that the file names. Then the file is read again.
 */
const TRIES_MAX = 3;
const TRY_PAUSE_MS = 100;

export function gatewayFilePath(dataPath: string): string {
  return join(dataPath, 'gateway.json');
}

/** Renames a temporary file with the pid in its name. A crash may leave that file, which nothing reads. */
export function writeGatewayFile(dataPath: string, address: GatewayAddress): void {
  const path = gatewayFilePath(dataPath);
  const temporaryPath = `${path}.${address.pid}`;
  writeFileSync(temporaryPath, `${JSON.stringify(address)}\n`, { mode: 0o600 });
  renameSync(temporaryPath, path);
}

/** Removes the file if it has this pid, or a successor's if the successor writes it after the check. */
export function removeGatewayFile(dataPath: string, pid: number): void {
  if (readGatewayFile(dataPath)?.pid === pid) unlinkSync(gatewayFilePath(dataPath));
}

/** The file belongs to another user: whether a gateway runs is not known. The command prints the message. */
class HiddenFileError extends Error {
  readonly code = 'EACCES';

  constructor(path: string) {
    super(
      `${path} cannot be read: permission denied. Run the command as the owner of the data directory (sudo, sudo -u), ` +
        'or name another one (--data, TOLLGATE_DATA).',
    );
  }
}

/**
 * Returns undefined if there is no file, or its content is not valid. Throws HiddenFileError if this user may
 * not read it.
 */
export function readGatewayFile(dataPath: string): GatewayAddress | undefined {
  const path = gatewayFilePath(dataPath);
  try {
    const value: unknown = JSON.parse(readFileSync(path, 'utf8'));
    return isGatewayAddress(value) ? value : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EACCES') throw new HiddenFileError(path);
    return undefined;
  }
}

/**
 * Returns the address in the file if the gateway that wrote the file responds there. Returns undefined if no
 * gateway responds, or at each of TRIES_MAX tries another gateway than the writer. A try takes at most
 * PROBE_TIMEOUT_MS. Rejects only with HiddenFileError.
 */
export async function findGateway(dataPath: string): Promise<GatewayAddress | undefined> {
  for (let tryNumber = 1; ; tryNumber += 1) {
    const result = await probeGateway(dataPath);
    if (result !== 'another') return result;
    if (tryNumber === TRIES_MAX) return undefined;
    await sleep(TRY_PAUSE_MS);
  }
}

/** Returns `another` if a gateway responds that did not write the file, such as one that takes over. */
async function probeGateway(dataPath: string): Promise<GatewayAddress | 'another' | undefined> {
  const address = readGatewayFile(dataPath);
  if (address === undefined) return undefined;
  try {
    const response = await fetch(`${adminOrigin(address)}/healthz`, {
      signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
      redirect: 'error',
    });
    const health: unknown = await response.json();
    if (!isHealth(health)) return undefined;
    return health.pid === address.pid ? address : 'another';
  } catch {
    return undefined;
  }
}

/** Returns the origin for commands on the same host. */
export function adminOrigin({ adminHost, adminPort }: GatewayAddress): string {
  return `http://${localAuthority(adminHost, adminPort)}`;
}

/** Returns where this machine reaches what listens on `host`: loopback for the wildcard, all addresses. */
export function localHost(host: string): string {
  return host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
}

/** As `localHost`, with the port, for a URL. */
export function localAuthority(host: string, port: number): string {
  const local = localHost(host);
  return `${local.includes(':') ? `[${local}]` : local}:${port}`;
}

function isGatewayAddress(value: unknown): value is GatewayAddress {
  if (typeof value !== 'object' || value === null) return false;
  const { pid, adminHost, adminPort } = value as Partial<Record<keyof GatewayAddress, unknown>>;
  return (
    isWhole(pid, Infinity) && typeof adminHost === 'string' && adminHost !== '' && isWhole(adminPort, 65_535)
  );
}

/** Whether the value is an integer from 1 to `maximum`. */
function isWhole(value: unknown, maximum: number): boolean {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= maximum;
}

/** Whether the value is the JSON of a response of `/healthz`, which server.ts makes. */
function isHealth(value: unknown): value is { readonly pid: number } {
  if (typeof value !== 'object' || value === null) return false;
  const { status, pid } = value as { readonly status?: unknown; readonly pid?: unknown };
  return status === 'ok' && Number.isInteger(pid);
}
