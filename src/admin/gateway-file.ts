/**
 * `gateway.json` in the data directory tells commands where the running gateway listens.
 * gateway/admin-service.ts writes the file when the admin port is open and removes it at the end, on the main
 * thread. Commands read it (cli/admin-client.ts).
 *
 * The file is validated by hand, because TypeBox takes 0.2 s of CPU to load, and `tollgate health` runs every
 * few seconds.
 *
 * Must hold: no reader sees half a file, and only its writer removes the file. A command trusts the file only
 * if the process that wrote it still responds, because a killed gateway leaves its file.
 */
import { readFileSync, renameSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

interface GatewayAddress {
  /** Of the gateway process that has the admin interface. */
  readonly pid: number;
  readonly adminHost: string;
  readonly adminPort: number;
}

/** On one host a response takes a millisecond. A gateway that is silent this long counts as dead. */
const PROBE_TIMEOUT_MS = 2_000;
/**
 * While the interface passes from one process of a group to the next, the process that responds may not be
 * the one in the file, for some milliseconds. Then the file is read again.
 */
const TRIES_MAX = 3;
const TRY_PAUSE_MS = 100;

export function gatewayFilePath(dataPath: string): string {
  return join(dataPath, 'gateway.json');
}

/** Replaces the file by a rename, so that no reader sees half of it. */
export function writeGatewayFile(dataPath: string, address: GatewayAddress): void {
  const path = gatewayFilePath(dataPath);
  const temporary = `${path}.${address.pid}`;
  writeFileSync(temporary, `${JSON.stringify(address)}\n`, { mode: 0o600 });
  renameSync(temporary, path);
}

/** Leaves the file alone if another process wrote it, such as a successor. */
export function removeGatewayFile(dataPath: string, pid: number): void {
  if (readGatewayFile(dataPath)?.pid === pid) unlinkSync(gatewayFilePath(dataPath));
}

/** Returns undefined if there is no file, or its content is not valid. */
export function readGatewayFile(dataPath: string): GatewayAddress | undefined {
  try {
    const value: unknown = JSON.parse(readFileSync(gatewayFilePath(dataPath), 'utf8'));
    return isGatewayAddress(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Returns the address of the gateway that runs on this data directory: that of the file, if the gateway
 * responds there. Undefined if nobody listens there, or another program does. Takes at most TRIES_MAX tries
 * of PROBE_TIMEOUT_MS. Never rejects.
 */
export async function findGateway(dataPath: string): Promise<GatewayAddress | undefined> {
  for (let tries = 1; ; tries += 1) {
    const found = await tryToFind(dataPath);
    if (found !== 'another') return found;
    if (tries === TRIES_MAX) return undefined;
    await sleep(TRY_PAUSE_MS);
  }
}

/** `another`: not the gateway of the file responds but another, such as one of its group that takes over. */
async function tryToFind(dataPath: string): Promise<GatewayAddress | 'another' | undefined> {
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

/** Returns the origin for commands on the same host: loopback if the gateway listens on all addresses. */
export function adminOrigin({ adminHost, adminPort }: GatewayAddress): string {
  const host = adminHost === '0.0.0.0' ? '127.0.0.1' : adminHost === '::' ? '::1' : adminHost;
  return `http://${host.includes(':') ? `[${host}]` : host}:${adminPort}`;
}

function isGatewayAddress(value: unknown): value is GatewayAddress {
  if (typeof value !== 'object' || value === null) return false;
  const { pid, adminHost, adminPort } = value as Partial<Record<keyof GatewayAddress, unknown>>;
  return (
    isWhole(pid, Infinity) && typeof adminHost === 'string' && adminHost !== '' && isWhole(adminPort, 65_535)
  );
}

function isWhole(value: unknown, maximum: number): boolean {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= maximum;
}

/** Whether the value is the JSON of a response of `/healthz`, which server.ts makes. */
function isHealth(value: unknown): value is { readonly pid: number } {
  if (typeof value !== 'object' || value === null) return false;
  const { status, pid } = value as { readonly status?: unknown; readonly pid?: unknown };
  return status === 'ok' && Number.isInteger(pid);
}
