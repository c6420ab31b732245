/** What is logged now: by level, and which calls. */
import t from 'tap';
import { createLogSwitch, LOG_LEVELS, LogSwitch } from '#src/telemetry/log-switch.js';

void t.test('levels', (t) => {
  const control = new LogSwitch(createLogSwitch());
  t.equal(control.level, 'info');
  const allowed = LOG_LEVELS.map((level) => {
    control.level = level;
    return LOG_LEVELS.filter((each) => control.allows(each));
  });
  t.same(allowed, [['error'], ['error', 'warn'], ['error', 'warn', 'info']]);
  t.end();
});

void t.test('each switch has a word of its own, which all threads see', (t) => {
  const buffer = createLogSwitch();
  const [written, read] = [new LogSwitch(buffer), new LogSwitch(buffer)];
  const seen = () => [read.level, read.writesAccessLog, read.samplePercent, read.storesCalls];
  t.same(seen(), ['info', false, 0, false], 'off at first');
  written.writesAccessLog = true;
  t.same(seen(), ['info', true, 0, false]);
  written.samplePercent = 7;
  t.same(seen(), ['info', true, 7, false]);
  written.storesCalls = true;
  t.same(seen(), ['info', true, 7, true]);
  written.level = 'error';
  written.writesAccessLog = false;
  t.same(seen(), ['error', false, 7, true]);
  t.end();
});
