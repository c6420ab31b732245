/** A bound of calls that leaves each listener none. */
import t from 'tap';
import { SOUND_YAML, worldOf } from './support.js';

const bounds = (calls: number, listeners: number): string =>
  `${SOUND_YAML}limits: { calls_in_flight: ${calls} }\nlisten: { listeners: ${listeners} }\n`;

void t.test('each listener must have a call', (t) => {
  const faultsOf = (calls: number, listeners: number): readonly string[] =>
    worldOf(t, { 'tollgate.yaml': bounds(calls, listeners) }).faults();
  t.same(faultsOf(3, 4), [
    'tollgate.yaml:7: limits.calls_in_flight: got 3, want at least 4, one for each of listen.listeners',
  ]);
  t.match(faultsOf(0, 2), [/limits\.calls_in_flight: got 0, want .* from 1 to/]);
  const { settings } = worldOf(t, { 'tollgate.yaml': bounds(4, 4) }).load();
  t.equal(settings.limits.calls_in_flight, 4);
  t.end();
});
