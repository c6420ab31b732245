/** What an operator is told of the end of a process. */
import t from 'tap';
import { exitText } from '#src/supervisor/exit-cause.js';

const ENDED = { code: null, signal: null, hasServed: false, dataPath: '/data', killsBefore: undefined };

void t.test('an exit code is told as it is', (t) => {
  t.equal(exitText({ ...ENDED, code: 0 }), 'exit code 0');
  t.equal(exitText({ ...ENDED, code: 78, hasServed: true }), 'exit code 78');
  t.end();
});

void t.test('a fault of memory is one of the disk only before the gateway has served', (t) => {
  for (const signal of ['SIGSEGV', 'SIGBUS'] as const) {
    t.match(
      exitText({ ...ENDED, signal }),
      new RegExp(`^signal ${signal}; perhaps the disk of /data is full`),
    );
    t.notMatch(exitText({ ...ENDED, signal, hasServed: true }), /disk/);
  }
  t.notMatch(exitText({ ...ENDED, signal: 'SIGABRT' }), /disk/);
  t.end();
});

void t.test('a kill: of memory if the kernel has counted more since the start, else perhaps', (t) => {
  const killsBefore = { file: '/sys/memory.events', count: -1 };
  const killed = exitText({ ...ENDED, signal: 'SIGKILL', killsBefore });
  // Without control groups that count, nothing more is known.
  t.match(
    killed,
    /^signal SIGKILL; (since it started the kernel has killed \d+ for memory|perhaps the kernel)/,
  );
  t.match(exitText({ ...ENDED, signal: 'SIGKILL' }), /^signal SIGKILL; perhaps the kernel killed it/);
  t.end();
});

void t.test('any other signal has no cause', (t) => {
  t.equal(exitText({ ...ENDED, signal: 'SIGTERM' }), 'signal SIGTERM');
  t.end();
});
