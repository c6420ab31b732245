/**
 * A network namespace for a server, with a cable to each host that can be pulled: packets are lost, and
 * nobody is told. Only root on Linux can make them; elsewhere tests skip by name.
 */
import { spawnSync } from 'node:child_process';
import type { Scope } from './mock.js';
import type { Wire, WireState } from './tcp-proxy.js';

function ip(...words: string[]): void {
  const { status, stderr, error } = spawnSync('ip', words, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`ip ${words.join(' ')}: ${error?.message ?? stderr}`);
}

function canMake(): boolean {
  const name = `tg${process.pid}try`;
  try {
    ip('netns', 'add', name);
    ip('link', 'add', `tg${process.pid}t`, 'type', 'veth', 'peer', 'name', 'far', 'netns', name);
    ip('netns', 'del', name);
    return true;
  } catch {
    return false;
  }
}

/** Says `skip` to tap, by name, where there are no namespaces. */
export const NO_CABLES = canMake() ? {} : { skip: 'no network namespaces: wants root and iproute2' };

export interface Cables {
  /** In it, `ip netns exec` runs the server. */
  readonly namespace: string;
  /** Of the server, by a cable that is never pulled. */
  readonly host: string;
  /** To a port of the server. */
  readonly wires: (port: number) => readonly Wire[];
}

/** Of this process, which makes one at a time. */
export function layCables(t: Scope, count: number): Cables {
  const namespace = `tg${process.pid}`;
  const net = `10.${64 + (process.pid % 128)}.${(process.pid >> 7) % 256}`;
  const farOf = (cable: number): string => `${net}.${4 * cable + 2}`;
  ip('netns', 'add', namespace);
  // Its cables go with it.
  t.teardown(() => ip('netns', 'del', namespace));
  for (let cable = 0; cable <= count; cable++) {
    const near = `${namespace}c${cable}`;
    ip('link', 'add', near, 'type', 'veth', 'peer', 'name', `far${cable}`, 'netns', namespace);
    ip('addr', 'add', `${net}.${4 * cable + 1}/30`, 'dev', near);
    ip('link', 'set', near, 'up');
    ip('-n', namespace, 'addr', 'add', `${farOf(cable)}/30`, 'dev', `far${cable}`);
    ip('-n', namespace, 'link', 'set', `far${cable}`, 'up');
  }
  const wireOf = (cable: number, port: number): Wire => ({
    host: farOf(cable),
    port,
    connections: 0,
    set: (state: WireState) =>
      ip('-n', namespace, 'link', 'set', `far${cable}`, state === 'open' ? 'up' : 'down'),
  });
  return {
    namespace,
    host: farOf(0),
    wires: (port) => Array.from({ length: count }, (_, at) => wireOf(at + 1, port)),
  };
}
