/**
 * Debian's Redis server on a free port of loopback: without persistence unless the test says otherwise, and
 * killed with it.
 */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { freePort } from './free-port.js';
import { eventually, temporaryFolder } from './gateway.js';
import type { Scope } from './mock.js';

const PROGRAM = 'redis-server';
/** Says `skip` to tap, by name, where there is no server; else undefined. */
export const NO_REDIS =
  spawnSync(PROGRAM, ['--version']).status === 0
    ? {}
    : { skip: 'no redis-server: test/setup-tools.sh sharing' };

export interface RedisServer {
  readonly port: number;
  /** Where servers of a Cluster talk to each other. */
  readonly busPort: number;
  /** `redis://127.0.0.1:port/0` */
  readonly url: string;
  /**
   * Sends one command over a connection of its own and gives the raw reply's first line, or the text of a
   * bulk reply.
   */
  readonly command: (...words: string[]) => Promise<string>;
  /** kill -9; resolves when it is gone. */
  kill(): Promise<void>;
  /** SIGSTOP and SIGCONT. */
  stop(): void;
  resume(): void;
  /** Starts it again on the same port and folder; empty unless it persists. */
  restart(more?: readonly string[]): Promise<void>;
}

/** `more` are words of its command line, as `--maxmemory 2mb`. `within`: in a network namespace. */
export async function startRedis(
  t: Scope,
  more: readonly string[] = [],
  within?: { readonly namespace: string; readonly host: string },
): Promise<RedisServer> {
  const host = within?.host ?? '127.0.0.1';
  const folder = temporaryFolder(t);
  const port = await freePort();
  // Not 10,000 above `port`, as by default: the kernel gives connections those ports.
  const busPort = await freePort();
  let child: ChildProcess | undefined;
  const start = async (words: readonly string[]): Promise<void> => {
    const bound = within === undefined ? ['--bind', host] : ['--bind', '0.0.0.0', '--protected-mode', 'no'];
    const always = [
      '--port',
      String(port),
      '--cluster-port',
      String(busPort),
      ...bound,
      '--dir',
      folder,
      '--save',
      '',
    ];
    // Else a replica waits 5 s for others that might come.
    always.push('--appendonly', 'no', '--daemonize', 'no', '--repl-diskless-sync-delay', '0');
    const before = within === undefined ? [] : ['ip', 'netns', 'exec', within.namespace];
    const [program, ...rest] = [...before, PROGRAM, ...always, ...words];
    child = spawn(program!, rest, { stdio: 'ignore' });
    await eventually('an answer of redis-server', async () => {
      // One that wants a password, or still loads, is up as well.
      const reply = await rawCommand(port, ['PING'], host);
      return reply === '' ? undefined : reply;
    });
  };
  const kill = async (): Promise<void> => {
    const dying = child;
    child = undefined;
    if (dying?.exitCode !== null || dying.signalCode !== null) return;
    const gone = once(dying, 'exit');
    dying.kill('SIGKILL');
    await gone;
  };
  t.teardown(kill);
  await start(more);
  return {
    port,
    busPort,
    url: `redis://${host}:${port}/0`,
    command: (...words) => rawCommand(port, words, host),
    kill,
    stop: () => child?.kill('SIGSTOP'),
    resume: () => child?.kill('SIGCONT'),
    restart: async (words = more) => {
      await kill();
      await start(words);
    },
  };
}

/** Enough of the protocol for one short reply. */
export async function rawCommand(
  port: number,
  words: readonly string[],
  host = '127.0.0.1',
): Promise<string> {
  const socket = connect({ host, port });
  try {
    await once(socket, 'connect');
    socket.write(
      `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`,
    );
    let text = '';
    for await (const chunk of socket) {
      text += String(chunk);
      const bulk = /^\$(\d+)\r\n/.exec(text);
      if (bulk === null ? text.endsWith('\r\n') : text.length >= bulk[0].length + Number(bulk[1]) + 2) break;
    }
    const bulk = /^\$(\d+)\r\n/.exec(text);
    return bulk === null ? text.trimEnd() : text.slice(bulk[0].length, bulk[0].length + Number(bulk[1]));
  } finally {
    socket.destroy();
  }
}
