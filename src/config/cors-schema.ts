/**
 * Which pages in browsers may call the gateway: CORS, for callers alone. Main threads and commands.
 */
import { Type } from 'typebox';
import { whole, type Annotations } from './annotations.js';

/** Of some hundred bytes each, in the memory of every listener. */
const ORIGINS_MAX = 100;
/** Browsers keep the response to a preflight for two hours to a day at most. */
const MAX_AGE_SECONDS_MAX = 86_400;

const ORIGIN = '^(?:\\*|[a-z][a-z0-9+.-]{0,30}://[a-z0-9._:\\[\\]-]{1,255})$';

/** Browsers leave out the port that the scheme has anyway: an origin that names it would never be met. */
function isAsSent(origin: string): boolean {
  if (!/^https?:/.test(origin)) return true;
  try {
    return new URL(origin).origin === origin;
  } catch {
    return false;
  }
}

export const corsSchema = Type.Object(
  {
    origins: Type.Array(
      Type.Refine(
        Type.String({
          pattern: ORIGIN,
          description: 'Scheme, host and port of a page, or * for every page.',
          'x-want':
            'an origin as browsers send it, such as https://app.example.com or http://localhost:3000 (lower case, no path, no usual port), or *',
        } satisfies Annotations),
        isAsSent,
      ),
      {
        minItems: 1,
        maxItems: ORIGINS_MAX,
        description:
          'Pages whose scripts may call the gateway and read its answers. A key that a page holds is known to whoever opens it.',
        'x-want': 'a list of at least one origin',
      } satisfies Annotations,
    ),
    max_age_seconds: whole(
      0,
      MAX_AGE_SECONDS_MAX,
      600,
      'seconds',
      'How long a browser may keep the answer to a preflight.',
    ),
  },
  {
    description:
      'Lets scripts in browsers call the gateway (CORS); left out, browsers refuse them the answers.',
    'x-want': 'a map of settings',
    'x-applies': 'reload',
  } satisfies Annotations,
);
