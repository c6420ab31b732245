/** One port for callers and operators: on two addresses it is two ports. */
import t from 'tap';
import { SOUND_YAML, worldOf } from './support.js';

void t.test('one port is for two addresses, and not for two names or wildcards', (t) => {
  const hosts = ['127.0.0.1', '127.0.0.2', 'fd00::1', 'fd00:0::2', '::1'];
  // A name may stand for any address, and a wildcard for all of them.
  const unclear = ['localhost', 'gateway.example', '127.1', '0.0.0.0', '::', '0::0', '::ffff:127.0.0.1'];
  const problemsOf = (listen: string, admin: string): readonly string[] => {
    const [first, second] = [listen, admin].map((host) => JSON.stringify({ host, port: 9 }));
    const world = worldOf(t, { 'tollgate.yaml': `${SOUND_YAML}listen: ${first}\nadmin: ${second}\n` });
    try {
      world.load();
      return [];
    } catch {
      return world.faults();
    }
  };
  const told = ['tollgate.yaml:8: admin.port: got 9, which is listen.port too, want another one'];
  for (const listen of [...hosts, ...unclear])
    for (const admin of [...hosts, ...unclear]) {
      const isClear = listen !== admin && hosts.includes(listen) && hosts.includes(admin);
      t.same(problemsOf(listen, admin), isClear ? [] : told, `${listen} and ${admin}`);
    }
  t.same(problemsOf('fd00::1', 'fd00:0:0::1'), told, 'one address in two spellings');
  t.end();
});
