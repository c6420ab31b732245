/**
 * Commands as an operator gives them: `tollgate …` in another process, with what it printed and how it ended.
 * Commands that come one after the other share a process (command-host.ts), because loading the program takes
 * most of a command's time. test/unit/cli/program.test.ts starts a process for each of its own.
 */
import { fork, type ChildProcess } from 'node:child_process';
import type { Readable } from 'node:stream';
import type { CommandOrder } from './command-host.js';

export interface CommandEnd {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  /** Standard output as JSON. */
  json(): unknown;
}

/** A command does one thing and ends; a store that is being written may keep it waiting for a second. */
const COMMAND_TIMEOUT_MS = 120_000;
const END_MARK = '\u0000the command has ended\u0000';

/** Processes that wait for a command. They end with this one. */
const idle: ChildProcess[] = [];

/** Runs in `folder`, where it finds `tollgate.yaml` and `data`. Nobody is at its standard input. */
export async function runCommand(
  folder: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<CommandEnd> {
  const host =
    idle.pop() ??
    fork(new URL('command-host.js', import.meta.url), { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] });
  setReferenced(host, true);
  const surroundings = {
    ...process.env,
    TOLLGATE_CONFIG: undefined,
    TOLLGATE_DATA: undefined,
    TOLLGATE_ADMIN_TOKEN: undefined,
  };
  const order: CommandOrder = { folder, args, env: { ...surroundings, ...env }, endMark: END_MARK };
  const timer = setTimeout(() => host.kill('SIGKILL'), COMMAND_TIMEOUT_MS);
  try {
    const ends = Promise.all([codeOf(host, args), textOf(host.stdout!), textOf(host.stderr!)]);
    host.send(order);
    const [code, stdout, stderr] = await ends;
    setReferenced(host, false);
    idle.push(host);
    return { code, stdout, stderr, json: () => JSON.parse(stdout) as unknown };
  } finally {
    clearTimeout(timer);
  }
}

function codeOf(host: ChildProcess, args: readonly string[]): Promise<number> {
  return new Promise((resolve, reject) => {
    const onExit = (code: number | null): void =>
      reject(new Error(`tollgate ${args.join(' ')} ended its process: ${code}`));
    host.once('exit', onExit);
    host.once('message', (code) => {
      host.off('exit', onExit);
      resolve(code as number);
    });
  });
}

/** What the command wrote, without the mark. */
function textOf(output: Readable): Promise<string> {
  return new Promise((resolve) => {
    let text = '';
    output.setEncoding('utf8');
    const onData = (part: string): void => {
      text += part;
      if (!text.endsWith(END_MARK)) return;
      output.off('data', onData);
      resolve(text.slice(0, -END_MARK.length));
    };
    output.on('data', onData);
  });
}

/** Whether this process stays for the host's sake. */
function setReferenced(host: ChildProcess, isReferenced: boolean): void {
  const how = isReferenced ? 'ref' : 'unref';
  host[how]();
  host.channel?.[how]();
  for (const output of [host.stdout, host.stderr])
    (output as unknown as Record<typeof how, () => void>)[how]();
}
