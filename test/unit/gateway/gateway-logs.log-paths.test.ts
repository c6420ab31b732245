/** Files of the gateways of a group: each its own. */
import t from 'tap';
import { withOwnLogs } from '#src/gateway/gateway-logs.js';
import { SOUND_YAML, worldOf } from '../config/support.js';

void t.test('the first writes where the settings say, the others beside it', (t) => {
  const { settings } = worldOf(t, { 'tollgate.yaml': SOUND_YAML }).load();
  const log = { rotate_bytes: 1_000, keep: 2 };
  const given = {
    ...settings,
    usage_log: { path: '/logs/usage', ...log },
    access_log: { ...settings.access_log, path: '/logs/access' },
  };
  const pathsOf = (slot: number) => {
    const own = withOwnLogs(given, slot);
    return [own.usage_log?.path, own.access_log.path];
  };
  t.same(pathsOf(0), ['/logs/usage', '/logs/access']);
  t.same(pathsOf(3), ['/logs/usage.p3', '/logs/access.p3']);
  t.same(withOwnLogs(settings, 3), settings, 'where none are written');
  t.end();
});
