/** Slots of upstreams: the same upstream keeps its slot over reloads, and no two share a name. */
import t from 'tap';
import { UPSTREAM_SLOTS_MAX } from '#src/telemetry/metrics-layout.js';
import { UpstreamNames } from '#src/telemetry/upstream-names.js';
import { ListLog } from '../store/support.js';

const at = (model: string, name: string, weight = 1) => ({ model, name, priority: 1, weight });
const shown = (names: UpstreamNames) =>
  names.current.map(({ model, name, slot }) => `${model} ${name} ${slot}`);

void t.test('slots stay over a reload', (t) => {
  const names = new UpstreamNames();
  names.assign([at('m', 'a'), at('m', 'b'), at('n', 'a'), at('m', 'a')]);
  t.same(shown(names), ['m a 0', 'm b 1', 'n a 2', 'm a#2 3']);
  names.assign([at('o', 'a'), at('m', 'b', 9)]);
  t.same(shown(names), ['o a 4', 'm b 1'], 'the order and what else is there do not matter');
  t.equal(names.current[1]!.weight, 9);
  t.same(
    names.known.map(({ slot }) => slot),
    [0, 1, 2, 3, 4],
    'counters of those that went are still told',
  );
  t.end();
});

void t.test('beyond the last slot they share it, which is logged', (t) => {
  const names = new UpstreamNames();
  const log = new ListLog();
  const hosts = Array.from({ length: UPSTREAM_SLOTS_MAX + 2 }, (_, index) => at('m', `host-${index}`));
  names.assign(hosts.slice(0, UPSTREAM_SLOTS_MAX));
  names.logShared(log);
  t.same(log.lines, [], 'the last slot is that of one');
  names.assign(hosts);
  names.logShared(log);
  t.match(log.lines, [/^warn the metrics have no room for more upstreams/]);
  t.same(log.fields, [{ upstreams_max: UPSTREAM_SLOTS_MAX, counted_together: 3 }]);
  t.same(
    names.current.slice(-3).map(({ slot }) => slot),
    new Array(3).fill(UPSTREAM_SLOTS_MAX - 1),
  );
  t.equal(names.known.length, UPSTREAM_SLOTS_MAX);
  t.end();
});
