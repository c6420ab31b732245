/**
 * What the admin interface and its clients must agree on. The gateway serves by these words (route.ts,
 * http.ts, fields.ts), and the console and the commands (cli/admin-client.ts) call by them. Pure; the console
 * has this file in the browser, so it imports nothing.
 *
 * Must hold: the words stay, because operators' programs use those of ROOT, and consoles that stay open over
 * an update use all. Tests in test/unit/admin have each as it is: stable-names.test.ts ROOT,
 * authentication.session.test.ts the session and the header, playground.test.ts its path, api.test.ts the
 * most items.
 */

/** The paths of all routes are below this one. */
export const ROOT = '/admin/v1';

// Not below ROOT, because they are for the console alone: what they take and return may change with it.
/** Begins (POST), shows (GET) and ends (DELETE) a console session. */
export const SESSION_PATH = '/admin/session';
export const PLAYGROUND_PATH = '/admin/playground';

/**
 * The console's own code sends this header with every request. A page of another site cannot, so a request
 * that changes something by a session must have it (authentication.ts).
 */
export const CONSOLE_HEADER = 'x-tollgate-console';
export const CONSOLE_HEADER_VALUE = '1';

/** The most items of a page of a list, which rejects more. Each takes 10 µs of the main thread. */
export const PAGE_ITEMS_MAX = 1_000;
