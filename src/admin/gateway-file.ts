/**
 * `gateway.json` in the data directory tells commands where the running gateway listens. Main thread of the gateway
 * writes it after listening and removes it at exit; commands read it and ask whether it is still true.
 */
import { readFileSync, renameSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Type, type Static } from 'typebox';
import { Check } from 'typebox/value';

const GatewayAddress = Type.Object({
  pid: Type.Integer({ minimum: 1 }),
  adminHost: Type.String({ minLength: 1 }),
  adminPort: Type.Integer({ minimum: 1, maximum: 65_535 }),
});

export type GatewayAddress = Readonly<Static<typeof GatewayAddress>>;

/** What `/healthz` answers. */
export const Health = Type.Object({ status: Type.Literal('ok'), pid: Type.Integer() });

/** On one host an answer takes a millisecond; a gateway that is busy for longer than this is as good as dead. */
const PROBE_TIMEOUT_MS = 2_000;

export function gatewayFilePath(dataPath: string): string {
  return join(dataPath, 'gateway.json');
}

/** Replaces the file as a whole, so that no reader ever sees half of it. */
export function writeGatewayFile(dataPath: string, address: GatewayAddress): void {
  const path = gatewayFilePath(dataPath);
  const temporary = `${path}.${address.pid}`;
  writeFileSync(temporary, `${JSON.stringify(address)}\n`, { mode: 0o600 });
  renameSync(temporary, path);
}

/** Leaves the file of another process alone: a successor may have written its own already. */
export function removeGatewayFile(dataPath: string, pid: number): void {
  if (readGatewayFile(dataPath)?.pid === pid) unlinkSync(gatewayFilePath(dataPath));
}

/** Undefined where there is none, or none that can be understood. */
export function readGatewayFile(dataPath: string): GatewayAddress | undefined {
  try {
    const value: unknown = JSON.parse(readFileSync(gatewayFilePath(dataPath), 'utf8'));
    return Check(GatewayAddress, value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The gateway that runs on this data directory: the file is there and the process it names answers at its address.
 * Undefined where nobody listens, or another program does. Takes at most two seconds.
 */
export async function findGateway(dataPath: string): Promise<GatewayAddress | undefined> {
  const address = readGatewayFile(dataPath);
  if (address === undefined) return undefined;
  try {
    const answer = await fetch(`${adminOrigin(address)}/healthz`, {
      signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
      redirect: 'error',
    });
    const health: unknown = await answer.json();
    return Check(Health, health) && health.pid === address.pid ? address : undefined;
  } catch {
    return undefined;
  }
}

/** Where a command on the same host reaches it: a gateway that listens on all addresses does so on loopback. */
export function adminOrigin({ adminHost, adminPort }: GatewayAddress): string {
  const host = adminHost === '0.0.0.0' ? '127.0.0.1' : adminHost === '::' ? '::1' : adminHost;
  return `http://${host.includes(':') ? `[${host}]` : host}:${adminPort}`;
}
