/**
 * Node for the children of tests and benches, without the loader that the test runner hands down to every
 * child. It takes two thirds of a gateway's start, as each thread loads it too, and it is put into
 * NODE_OPTIONS whatever `env` says, so another program takes it out. The process id is node's own.
 */

/** Options of a worker thread, which else takes over what the runner gave this process. */
export const PLAIN_THREAD: { readonly execArgv: string[] } = { execArgv: [] };

/** The program and its first arguments; `nodeOptions` are those that the child is to have. */
export function plainNode(nodeOptions = ''): { readonly file: string; readonly args: readonly string[] } {
  return { file: '/usr/bin/env', args: [`NODE_OPTIONS=${nodeOptions}`, process.execPath] };
}
