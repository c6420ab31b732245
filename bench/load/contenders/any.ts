/**
 * Whatever else is to be compared: a gateway that somebody started beside the bench, in front of the bench's
 * upstream (`--upstream-port`). It must run on this machine, because its CPU time is read from /proc.
 */
import { processTree } from '../../support/proc.js';
import { JSON_HEADERS, type Contender } from './contender.js';

export interface AnyOptions {
  /** Base URL, as `http://127.0.0.1:9000/v1`. */
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly pid: number;
}

export const anyContender = ({ url, headers, pid }: AnyOptions): Contender => ({
  name: 'any',
  port: Number(url.port),
  pids: () => processTree(pid),
  callOf: () => ({
    path: `${url.pathname.replace(/\/$/, '')}/chat/completions`,
    headers: { ...JSON_HEADERS, ...headers },
  }),
});
