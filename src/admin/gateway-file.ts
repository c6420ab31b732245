/**
 * `gateway.json` in the data directory tells commands where the running gateway listens. The gateway's main
 * thread writes it after listening and removes it at exit. Commands read it.
 *
 * The file is validated by hand: TypeBox takes 0.2 s of CPU to load, and `tollgate health` runs every few
 * seconds.
 *
 * Must hold: no reader sees half a file, only its writer removes it, and a command trusts it only if the
 * process that wrote it still responds, because a killed gateway leaves its file
 * (test/unit/admin/gateway-file.test.ts).
 */
import { readFileSync, renameSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

interface GatewayAddress {
  readonly pid: number;
  readonly adminHost: string;
  readonly adminPort: number;
}

/** On one host a response takes a millisecond. A gateway that is silent this long counts as dead. */
const PROBE_TIMEOUT_MS = 2_000;
/**
 * While the interface passes from one process of a group to the next, the response may be of the one that is
 * not in the file, for some milliseconds. Then the file is read again.
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

/** Leaves the file alone if another process wrote it: a successor may have done so already. */
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
 * Returns the gateway that runs on this data directory: the one that the file names, if it responds at its
 * address. Undefined if nobody listens there, or another program does. Takes at most two seconds a try.
 */
export async function findGateway(dataPath: string): Promise<GatewayAddress | undefined> {
  for (let tries = 1; ; tries += 1) {
    const found = await tryToFind(dataPath);
    if (found !== 'another') return found;
    if (tries === TRIES_MAX) return undefined;
    await sleep(TRY_PAUSE_MS);
  }
}

/** `another`: a gateway responds that is not the one in the file. One of its group may be taking over. */
async function tryToFind(dataPath: string): Promise<GatewayAddress | 'another' | undefined> {
  const address = readGatewayFile(dataPath);
  if (address === undefined) return undefined;
  try {
    const answer = await fetch(`${adminOrigin(address)}/healthz`, {
      signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
      redirect: 'error',
    });
    const health: unknown = await answer.json();
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

/** Returns whether the value is a response of `/healthz`. */
function isHealth(value: unknown): value is { readonly pid: number } {
  if (typeof value !== 'object' || value === null) return false;
  const { status, pid } = value as { readonly status?: unknown; readonly pid?: unknown };
  return status === 'ok' && Number.isInteger(pid);
}
