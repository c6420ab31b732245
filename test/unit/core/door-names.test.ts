/** What metrics and logs say of a door is what the door itself sends. */
import t from 'tap';
import { DOOR_PATHS, statusByDoor } from '#src/core/door-names.js';
import { ERROR_KINDS, type ErrorCode } from '#src/core/errors.js';
import { DOORS } from '#src/doors/doors.js';

void t.test('statuses of errors are those of the door', (t) => {
  for (const { name, path, errors } of DOORS) {
    t.equal(path, DOOR_PATHS[name]);
    for (const code of Object.keys(ERROR_KINDS) as ErrorCode[])
      t.equal(statusByDoor(name, code), errors.status({ code, message: '' }), `${name}: ${code}`);
  }
  t.end();
});
