/**
 * The settings of one plan: one declaration each. Main threads and commands; never imported by a listener or a worker.
 */
import { Type } from 'typebox';
import { CALLS_IN_FLIGHT_MAX, CALLS_PER_DAY_MAX, REQUESTS_PER_MINUTE_MAX } from '../core/limits.js';
import { identifier, type Annotations } from './annotations.js';
import { MODELS_MAX, OUTPUT_TOKENS_MAX } from './model-schema.js';

/** Bodies are held whole until they have been checked, so this times a few callers is memory. */
export const BODY_BYTES_MAX = 256 * 1024 * 1024;
/** A smaller one would refuse a question of a few sentences. */
export const BODY_BYTES_MIN = 1_024;

const whole = (minimum: number, maximum: number, unit: string, description: string) =>
  Type.Integer({ minimum, maximum, description, 'x-unit': unit } satisfies Annotations);

export const planSchema = Type.Object(
  {
    id: identifier('The name that accounts refer to.'),
    requests_per_minute: whole(
      1,
      REQUESTS_PER_MINUTE_MAX,
      'requests',
      'Requests that an account may make in any span of 60 seconds.',
    ),
    calls_per_day: whole(
      1,
      CALLS_PER_DAY_MAX,
      'calls',
      'Calls that an account may make in a day; the day begins at 00:00 UTC+8.',
    ),
    models: Type.Array(
      Type.String({
        pattern: '^[!-~]{1,128}$',
        description: "A model's id, or a pattern in which * stands for any characters.",
        'x-want': "a model's id, or a pattern with *",
      } satisfies Annotations),
      {
        minItems: 1,
        maxItems: MODELS_MAX,
        default: ['*'],
        description: 'Models that the plan may use, under their ids and their aliases.',
        'x-want': 'a list of at least one model',
      } satisfies Annotations,
    ),
    max_tokens: Type.Optional(
      whole(
        1,
        OUTPUT_TOKENS_MAX,
        'tokens',
        'The most that a call may ask for in max_tokens or max_completion_tokens, and gets where it asks for nothing; where it is left out, what the model generates at most.',
      ),
    ),
    calls_in_flight: Type.Optional(
      whole(
        1,
        CALLS_IN_FLIGHT_MAX,
        'calls',
        'Calls at a time of one account on the plan, where it is lower than limits.calls_in_flight_per_account.',
      ),
    ),
    body_bytes: Type.Optional(
      whole(
        BODY_BYTES_MIN,
        BODY_BYTES_MAX,
        'bytes',
        'Largest body of a request, where it is lower than limits.body_bytes.',
      ),
    ),
  },
  { description: 'One plan.', 'x-want': 'a map of settings' } satisfies Annotations,
);
