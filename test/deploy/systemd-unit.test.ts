import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { loadSettings } from '#src/config/load.js';
import { settingsSchema } from '#src/config/schema.js';
import { EXIT_GRACE_MS } from '#src/core/limits.js';

const UNIT = 'deploy/systemd/tollgate.service';
/** Of 100, in systemd's own count of what a service could do to its machine; 0 can do nothing. */
const EXPOSURE_MAX = 15;
/** `security --offline` came with 250. */
const SYSTEMD_VERSION_MIN = 250;

const text = readFileSync(UNIT, 'utf8');
const valueOf = (name: string): string | undefined => new RegExp(`^${name}=(.*)$`, 'm').exec(text)?.[1];

function systemdVersion(): number {
  try {
    const shown = execFileSync('systemd-analyze', ['--version'], { encoding: 'utf8' });
    return Number(/^systemd (\d+)/.exec(shown)?.[1] ?? 0);
  } catch {
    return 0;
  }
}
const skip =
  systemdVersion() < SYSTEMD_VERSION_MIN && `no systemd-analyze of ${SYSTEMD_VERSION_MIN} or newer`;

void t.test('systemd understands all of the unit', { skip }, (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  // Verified is also that the program is there, and this machine may have its Node elsewhere.
  const verify = (unit: string): string => {
    const path = join(folder, 'tollgate.service');
    writeFileSync(path, unit.replace('ExecStart=/usr/bin/node', `ExecStart=${process.execPath}`));
    const script = 'systemd-analyze verify --recursive-errors=no "$0" 2>&1 || true';
    return execFileSync('sh', ['-c', script, path], { encoding: 'utf8' });
  };
  t.equal(verify(text), '');
  t.match(verify(text.replace('LimitNOFILE', 'LimitNFILE')), /LimitNFILE/, 'a misspelt one is found');
  t.end();
});

void t.test('it runs nothing that a small system may lack', (t) => {
  // Debian's /bin/kill is of procps, which is not in every image; the shell has a kill of its own.
  const programs = Array.from(text.matchAll(/^Exec\w+=(\S+)/gm), ([, program]) => program);
  t.same(programs, ['/usr/bin/node', '/bin/sh']);
  t.end();
});

void t.test('little is left to it', { skip }, (t) => {
  const args = ['security', '--offline=true', `--threshold=${EXPOSURE_MAX}`, '--no-pager', UNIT];
  t.match(execFileSync('systemd-analyze', args, { encoding: 'utf8' }), /Overall exposure level/);
  t.end();
});

/** Of a gateway process with one listener and one worker on two cores; V8 starts more with more cores. */
const THREADS_PER_PROCESS = 13;

void t.test('threads for as many processes as the settings take', (t) => {
  const { maximum } = settingsSchema.properties.processes as { maximum?: number };
  t.ok(Number(valueOf('TasksMax')) >= 2 * maximum! * THREADS_PER_PROCESS, 'twice what they have');
  t.end();
});

void t.test('sockets for all calls, and time for them to end', (t) => {
  const { settings } = loadSettings({}, { environment: {}, workingDirectory: '/' });
  t.ok(Number(valueOf('LimitNOFILE')) >= 4 * settings.limits.calls_in_flight, 'two a call, and idle callers');
  t.ok(Number(valueOf('TimeoutStopSec')) * 1_000 >= settings.drain_timeout_ms + EXIT_GRACE_MS);
  t.equal(valueOf('KillMode'), 'mixed', 'the supervisor alone is asked to end');
  t.equal(valueOf('Environment=TOLLGATE_DATA'), `/var/lib/${valueOf('StateDirectory') ?? ''}`);
  t.end();
});
