/**
 * Child processes of tests and benches: started, waited for until they say that they are ready, and ended by
 * their own id.
 */
import { spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';

export interface ChildOptions {
  /** For messages. */
  readonly name: string;
  /** Arguments of node: a script and what it takes. */
  readonly args: readonly string[];
  /** A command line that starts the one after it, such as one that puts it into a cgroup. */
  readonly launcher?: readonly string[] | undefined;
  readonly cwd?: string | undefined;
  /** Over the environment of this process; undefined removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  /** What standard output must contain before the child counts as ready. */
  readonly ready: RegExp;
  readonly readyTimeoutMs: number;
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface Child {
  readonly pid: number;
  /** The match of `ready`. */
  readonly ready: RegExpExecArray;
  readonly exit: Promise<Exit>;
  stdout(): string;
  stderr(): string;
  signal(signal: NodeJS.Signals): void;
  /** Sends `signal` and waits. Rejects, after SIGKILL, where the child has not ended in time. */
  stop(signal: NodeJS.Signals, withinMs: number): Promise<Exit>;
}

/** Output kept for messages and assertions; a child that says more is cut at the front. */
const OUTPUT_CHARS_MAX = 4_000_000;

/** Resolves as `work`; rejects with a message that begins with `what` where that takes longer. */
export async function within<T>(work: Promise<T>, timeoutMs: number, what: string): Promise<T> {
  const timer = new AbortController();
  const late = sleep(timeoutMs, undefined, { signal: timer.signal }).then(() => {
    throw new Error(`${what}: not within ${timeoutMs} ms`);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    timer.abort();
    late.catch(() => undefined);
  }
}

/** Starts node and resolves when it is ready; rejects with its output where it ends before, or is late. */
export async function startChild(options: ChildOptions): Promise<Child> {
  // Node 20 reads what NODE_EXTRA_CA_CERTS names at each start, 0.1 s of CPU for a system's own; no child
  // wants it unless it says so.
  const env = { ...process.env, NODE_EXTRA_CA_CERTS: undefined, ...options.env };
  const [file = '', ...args] = [...(options.launcher ?? []), process.execPath, ...options.args];
  const running = spawn(file, args, {
    cwd: options.cwd,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  running.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-OUTPUT_CHARS_MAX);
  });
  const exit = new Promise<Exit>((resolve) => {
    running.once('error', () => resolve({ code: null, signal: null }));
    running.once('close', (code, signal) => resolve({ code, signal }));
  });
  const output = (): string => `\n--- stdout\n${stdout}\n--- stderr\n${stderr}`;
  const ready = new Promise<RegExpExecArray>((resolve, reject) => {
    running.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout = (stdout + text).slice(-OUTPUT_CHARS_MAX);
      const match = options.ready.exec(stdout);
      if (match !== null) resolve(match);
    });
    void exit.then(({ code, signal }) =>
      reject(new Error(`ended early (${code ?? signal ?? 'not started'})`)),
    );
  });
  try {
    const match = await within(ready, options.readyTimeoutMs, 'ready');
    return {
      pid: running.pid!,
      ready: match,
      exit,
      stdout: () => stdout,
      stderr: () => stderr,
      signal: (signal) => void running.kill(signal),
      stop: async (signal, withinMs) => {
        running.kill(signal);
        try {
          return await within(exit, withinMs, `${options.name} after ${signal}`);
        } catch (error) {
          running.kill('SIGKILL');
          throw error;
        }
      },
    };
  } catch (error) {
    running.kill('SIGKILL');
    throw new Error(`${options.name}: ${error instanceof Error ? error.message : String(error)}${output()}`);
  }
}
