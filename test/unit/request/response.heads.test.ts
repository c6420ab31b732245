/** Heads of responses: their status lines, and that scripts of pages may read all that they say. */
import t from 'tap';
import type { HttpResponse } from 'uWebSockets.js';
import { ERROR_CODES } from '#src/core/errors.js';
import { DOORS } from '#src/doors/doors.js';
import { PUBLIC_DOCUMENT } from '#src/protocol/generated.js';
import type { ChatExchange } from '#src/request/chat-exchange.js';
import { CallContext } from '#src/request/context.js';
import { Cors, writeChatHead, writeError } from '#src/request/response.js';

/** What the test reads of the OpenAPI document. */
interface Document {
  readonly paths: Readonly<Record<string, { readonly post: Operation }>>;
}
interface Operation {
  readonly responses: Readonly<Record<string, { readonly headers: object }>>;
}

const PAGE = 'https://app.example.com';
/** Headers that scripts may read of any response, and those that tell a script nothing. */
const OF_NO_NEED = ['cache-control', 'content-type', 'keep-alive', 'vary', 'x-accel-buffering'];

/** Keeps what is written as the status, with the lines that follow it. */
function response(): { readonly res: HttpResponse; readonly lines: () => string[] } {
  let head = '';
  const res = {
    writeStatus: (text: string) => void (head = text),
    writeHeader: (name: string, value: string) => void (head += `\r\n${name}: ${value}`),
    end: () => undefined,
  } as unknown as HttpResponse;
  return { res, lines: () => head.split('\r\n') };
}

const cors = new Cors({ origins: [PAGE], maxAgeSeconds: 1 });

function contextAt(door: CallContext['door']): CallContext {
  const context = new CallContext('req_test', 1, cors.linesFor(PAGE), door);
  context.rateLimit = { limit: 2, remaining: 1, resetSeconds: 3 };
  context.tokenLimit = { limit: 4, remaining: 3, resetMs: 5 };
  return context;
}

/** The names of headers that scripts cannot read, of those in `lines`, a head without its status. */
function unreadable(lines: readonly string[]): string[] {
  const headers = new Map(lines.map((line) => line.split(': ', 2) as [string, string]));
  const exposed = headers.get('access-control-expose-headers')!.split(', ');
  return [...headers.keys()].filter(
    (name) => !name.startsWith('access-control-') && ![...exposed, ...OF_NO_NEED].includes(name),
  );
}

void t.test('each error has a status line at each door, and headers that scripts may read', (t) => {
  for (const door of DOORS)
    for (const code of ERROR_CODES) {
      const { res, lines } = response();
      const error = { code, message: 'told', retryAfterSeconds: 1 };
      writeError(res, error, contextAt(door), false);
      const [status, ...headers] = lines();
      const what = `${code} at ${door.name}`;
      t.match(status, new RegExp(`^${door.errors.status(error)} [A-Z][A-Za-z ]+$`), what);
      t.same(unreadable(headers), [], what);
    }
  t.end();
});

void t.test('the headers that the OpenAPI document names are those of responses', (t) => {
  const { paths } = JSON.parse(PUBLIC_DOCUMENT) as Document;
  for (const door of DOORS) {
    const { res, lines } = response();
    const exchange = Object.assign(contextAt(door), { res, endsConnection: false });
    writeChatHead(exchange as unknown as ChatExchange, true, false);
    const written = lines().map((line) => line.split(': ')[0]);
    const documented = Object.keys(paths[door.path]!.post.responses['200']!.headers);
    t.ok(documented.length > 3);
    for (const name of documented) t.ok(written.includes(name.toLowerCase()), `${name} at ${door.name}`);
  }
  t.end();
});

void t.test('scripts may read which model answered', (t) => {
  for (const door of DOORS) {
    const { res, lines } = response();
    const exchange = Object.assign(contextAt(door), { res, endsConnection: false });
    writeChatHead(exchange as unknown as ChatExchange, true, false, 'fallback');
    const [status, ...headers] = lines();
    t.equal(status, '200 OK');
    t.ok(headers.includes('x-tollgate-model: fallback'));
    t.same(unreadable(headers), [], door.name);
  }
  t.end();
});
