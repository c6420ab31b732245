/**
 * The settings of responses that are kept for repeats with the same `Idempotency-Key`. Main threads and commands.
 */
import { Type } from 'typebox';
import { UPSTREAM_RESPONSE_BYTES_MAX } from '../core/limits.js';
import { whole, type Annotations } from './annotations.js';

/** A month: what is repeated later than that is not a retry. */
const KEEP_HOURS_MAX = 744;
/** One of the longest answers, at least; half of the file that the books may grow to, at most. */
const STORE_BYTES_MIN = 2 * UPSTREAM_RESPONSE_BYTES_MAX;
const STORE_BYTES_MAX = 8 * 1024 ** 3;
const ANSWER_BYTES_MIN = 1_024;

export const idempotencySchema = Type.Object(
  {
    keep_hours: whole(
      1,
      KEEP_HOURS_MAX,
      24,
      'hours',
      'How long a repeat with the same Idempotency-Key gets the answer of the first.',
    ),
    store_bytes: whole(
      STORE_BYTES_MIN,
      STORE_BYTES_MAX,
      268_435_456,
      'bytes',
      'Answers that are kept, of all accounts; the oldest go first.',
    ),
    answer_bytes: whole(
      ANSWER_BYTES_MIN,
      UPSTREAM_RESPONSE_BYTES_MAX,
      4_194_304,
      'bytes',
      'Longest answer that is kept; a repeat of a longer one is refused with 400, and not charged again.',
    ),
  },
  {
    default: {},
    description: 'Answers that are kept for repeats with the same Idempotency-Key.',
    'x-want': 'a map of settings',
    'x-applies': 'replacement',
  } satisfies Annotations,
);
