import { spawnSync } from 'node:child_process';

/** Says `skip` to tap, by name, where there is no HAProxy; else undefined. */
export const NO_HAPROXY =
  spawnSync('haproxy', ['-v']).status === 0 ? {} : { skip: 'no haproxy: test/setup-tools.sh compose' };
