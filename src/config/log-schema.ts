/**
 * Declares the sections `log`, `access_log`, `call_log` and `usage_log`. schema.ts has these sections as part
 * of all settings. Main threads and commands.
 *
 * Must hold (test/unit/config/log-schema.test.ts):
 * - By default there is no usage log, no access log, and no contents of calls are kept.
 * - The least space for records or contents is enough for the most processes and the longest texts: else each
 *   process would remove what the others have just written (`removeOldSegments` of
 *   call-log/segment-files.ts).
 */
import * as Type from 'typebox';
import { PROCESSES_MAX } from '../core/limits.js';
import {
  filePath,
  switchSetting,
  optionalFile,
  section,
  settingsMap,
  wholeNumber,
  type Annotations,
} from './annotations.js';

/** A busy gateway would rotate a smaller file several times a second. */
const FILE_BYTES_MIN = 1024 * 1024;
const FILE_BYTES_MAX = 1024 ** 4;
/** Each rotation renames all files. */
const FILES_MAX = 1_000;

const rotation = {
  rotate_bytes: wholeNumber(FILE_BYTES_MIN, FILE_BYTES_MAX, 104_857_600, 'bytes', {
    description: 'Size at which a new file is begun.',
  }),
  keep: wholeNumber(1, FILES_MAX, 10, 'files', {
    description: 'Older files that are kept.',
  }),
};

export const logSchema = Type.Object(
  {
    level: Type.Enum(['error', 'warn', 'info'], {
      default: 'info',
      description:
        'Least severe lines that are written: requests or data lost (error), what failed and was recovered (warn), starts and stops (info). What operators do is written at every level.',
    } satisfies Annotations),
  },
  section('The log, on standard error.', 'reload'),
);

export const accessLogSchema = Type.Object(
  {
    enabled: switchSetting({
      description: 'Whether every chat call, also a refused one, is a line in the log when it ends.',
    }),
    path: optionalFile(
      'File for these lines, in place of standard error; relative to the configuration file. Older files are path.1, path.2, …. With several processes each but the first has its own: path.p1, path.p2, ….',
    ),
    sample_percent: wholeNumber(0, 100, 100, 'percent', {
      description: 'Share of the calls that went well which are written; those that did not always are.',
    }),
    ...rotation,
  },
  section('A line for each chat call: who, model, upstream, outcome, tokens, cost, times.', 'reload'),
);

/** For PROCESSES_MAX processes 1 MiB each, of which one call with the longest texts takes half. */
const CALLS_BYTES_MIN = PROCESSES_MAX * 1024 * 1024;
const CALLS_BYTES_MAX = 1024 ** 4;
const CALLS_HOURS_MAX = 366 * 24;
/** Of the request, and of the response. CALLS_BYTES_MIN goes by it. */
const CONTENTS_TEXT_BYTES_MAX = 256 * 1024;

export const callLogSchema = Type.Object(
  {
    enabled: Type.Boolean({
      default: true,
      description:
        'Whether the record of every call, also a refused one, is kept in the data directory: who, model, attempts, what quotas had left, outcome, tokens, cost, times. Of refused calls at most some a second are kept.',
      'x-want': 'true or false',
    } satisfies Annotations),
    keep_hours: wholeNumber(1, CALLS_HOURS_MAX, 72, 'hours', {
      description: 'How long records are kept at most.',
    }),
    keep_bytes: wholeNumber(CALLS_BYTES_MIN, CALLS_BYTES_MAX, 1_073_741_824, 'bytes', {
      description: 'Space for records on the disk, of all processes together; the oldest go first.',
    }),
    contents: Type.Enum(['none', 'errors', 'all'], {
      default: 'none',
      description:
        'Whether the body of the request and the text of the response are kept too, apart from records: of no call, of those that did not go well, or of all. Never of a key that is private. See the operations guide before you turn it on.',
    } satisfies Annotations),
    contents_keep_hours: wholeNumber(1, CALLS_HOURS_MAX, 24, 'hours', {
      description: 'How long contents are kept at most.',
    }),
    contents_keep_bytes: wholeNumber(CALLS_BYTES_MIN, CALLS_BYTES_MAX, 268_435_456, 'bytes', {
      description: 'Space for contents on the disk, of all processes together; the oldest go first.',
    }),
    contents_body_bytes: wholeNumber(1_024, CONTENTS_TEXT_BYTES_MAX, 65_536, 'bytes', {
      description:
        'Longest request, and longest response, that is kept whole; of a longer one the beginning is.',
    }),
  },
  section('Records of calls, for `tollgate calls`, the admin interface and the console.', 'reload'),
);

export const usageLogSchema = Type.Object(
  {
    path: filePath(
      'File to append to; relative to the configuration file. Older files are path.1, path.2, …. With several processes each but the first has its own: path.p1, path.p2, ….',
    ),
    ...rotation,
  },
  settingsMap(
    'Where to log every charge, as one line of JSON: who, model, outcome, tokens, cost. Without it there is no such file.',
    'replacement',
  ),
);
