/**
 * Declares the section `notify`: the receiver of notices that a quota is nearly used up or a balance is low.
 * schema.ts has the section as part of all settings. load.ts checks that a `url` has a secret. Main threads
 * and commands.
 *
 * Must hold: a secret is what Standard Webhooks allows (test/unit/config/notify-schema.test.ts).
 */
import * as Type from 'typebox';
import { picoUnitsOf } from '../core/money.js';
import { optionalFile, settingsMap, wholeNumber, type Annotations } from './annotations.js';
import { HTTP_HOST_HINT, isHttpUrl } from './upstream-schema.js';

/** Each threshold makes a notice for each quota and period; more notices would not be read. */
const THRESHOLDS_MAX = 10;
/** Bytes of a signing key, as Standard Webhooks allows. */
const SECRET_BYTES_MIN = 24;
const SECRET_BYTES_MAX = 64;
const SECRET = /^whsec_([A-Za-z0-9+/]+={0,2})$/;

/** Returns the bytes of a secret like `whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw`; undefined for other text. */
export function webhookKeyOf(secret: string): Buffer | undefined {
  const encoded = SECRET.exec(secret)?.[1];
  if (encoded === undefined) return undefined;
  const bytes = Buffer.from(encoded, 'base64');
  // Buffer.from drops a last character that is one too many, and bits beyond the last byte. A text that loses
  // something is rejected: the receiver's library may read it differently.
  const isWhole = bytes.toString('base64').replace(/={1,2}$/, '') === encoded.replace(/={1,2}$/, '');
  return isWhole && bytes.length >= SECRET_BYTES_MIN && bytes.length <= SECRET_BYTES_MAX ? bytes : undefined;
}

/** The end of the sentence "want …" in an error. */
export const WANTED_SECRET = 'whsec_ and the base64 of 24 to 64 random bytes';

export const notifySchema = Type.Object(
  {
    url: Type.Optional(
      Type.Refine(
        Type.String({
          maxLength: 2_000,
          description:
            'Where each notice is sent by POST, signed as Standard Webhooks are; without it notices are lines in the log alone. Redirects are not followed.',
          'x-want': 'an http:// or https:// address without user and password',
          'x-hint': HTTP_HOST_HINT,
          'x-secret-path': true,
        } satisfies Annotations),
        isHttpUrl,
      ),
    ),
    secret: Type.Optional(
      Type.Refine(
        Type.String({
          description: 'Signs what is sent to url, as a reference to an environment variable.',
          'x-want': 'a reference such as "${TOLLGATE_WEBHOOK_SECRET}", or secret_file',
          'x-hint': WANTED_SECRET,
          'x-secret': true,
        } satisfies Annotations),
        (text) => webhookKeyOf(text) !== undefined,
      ),
    ),
    secret_file: optionalFile('A file that holds the secret; relative to the configuration file.'),
    at: Type.Array(
      Type.Integer({
        minimum: 1,
        maximum: 100,
        description: 'Percent of a quota of a day or a month that is used.',
        'x-unit': 'percent',
      } satisfies Annotations),
      {
        minItems: 1,
        maxItems: THRESHOLDS_MAX,
        default: [80, 100],
        description:
          'When to tell of a quota of a day or a month, of a key, an account or a group; each once in each day or month.',
        'x-want': 'a list of 1 to 10 percentages',
      } satisfies Annotations,
    ),
    low_balance: Type.Optional(
      Type.Refine(
        Type.String({
          description:
            'Tells of an account when its balance, with what calls in flight hold, falls below it; again after the next credit.',
          'x-unit': 'currency',
          'x-want': 'a decimal string above 0 such as "5.00"',
          'x-hint': 'in quotes: YAML would round a bare number',
        } satisfies Annotations),
        (text) => (picoUnitsOf(text) ?? 0n) > 0n,
      ),
    ),
    timeout_ms: wholeNumber(100, 60_000, 10_000, 'milliseconds', {
      description: 'Longest wait for the receiver to answer one attempt.',
    }),
  },
  settingsMap(
    'Whom to tell that a quota of a day or a month is nearly used up, or that a balance is low. With notify: {} it is a line in the log; without the section nobody is told.',
    'reload',
  ),
);
