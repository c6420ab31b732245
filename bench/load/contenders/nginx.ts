/**
 * nginx as a plain reverse proxy: it checks and counts nothing, so it is what passing the bytes on costs.
 */
import { freePort } from '../../../test/support/free-port.js';
import type { Scope } from '../../../test/support/mock.js';
import { openCall, type Contender } from './contender.js';
import { installed, startProgram } from './program.js';

/**
 * One worker; connections to the upstream are kept, for less than the 5 s after which the upstream ends them:
 * a call sent into that end is a 502. What comes is passed on at once. Bodies of the bench stay in memory.
 */
const configOf = (folder: string, port: number, upstreamPort: number): string => `
daemon off;
worker_processes 1;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log;
events { worker_connections 32768; }
http {
  access_log off;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  client_body_buffer_size 64k;
  keepalive_requests 1000000000;
  upstream mock {
    server 127.0.0.1:${upstreamPort};
    keepalive 512;
    keepalive_requests 1000000000;
    keepalive_timeout 3s;
  }
  server {
    listen 127.0.0.1:${port} backlog=16384;
    location / {
      proxy_pass http://mock;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }
  }
}
`;

/** Undefined where nginx is not installed. */
export async function startNginx(scope: Scope, upstreamPort: number): Promise<Contender | undefined> {
  const file = installed('nginx');
  if (file === undefined) return undefined;
  const port = await freePort();
  const program = await startProgram(scope, {
    file,
    config: (folder) => configOf(folder, port, upstreamPort),
    args: (folder, configFile) => ['-p', folder, '-c', configFile, '-e', `${folder}/error.log`],
    port,
  });
  return { name: 'nginx', port, pids: program.pids, callOf: openCall };
}
