/**
 * What matrices of faults share: the endings of a call, how its cells are made from rows and run, and that
 * nothing stays behind.
 */
import type { Test } from 'tap';
import type { AccountView } from './admin-client.js';
import { UNUSED, type FaultServer } from './fault-server.js';
import { eventually, type Gateway } from './gateway.js';
import type { Answer } from './http.js';
import { chunksOf, eventData, textOf } from './sse.js';

/** Cells at once: enough to hide the stalls, few enough for two cores to keep the short timeouts true. */
const CELLS_AT_ONCE = 16;
export const FAULT_TIMEOUTS = {
  connect_timeout_ms: 3_000,
  first_byte_timeout_ms: 3_000,
  idle_timeout_ms: 3_000,
  total_timeout_ms: 8_000,
};

/** Before a byte went down, another upstream may answer. */
export const UNSERVED = { whole: ['down', 'other'], stream: ['down', 'other'] } as const;
/** A whole response is held until it is whole; of a stream, a part is out. */
export const BROKEN = { whole: ['down', 'other'], stream: ['cut', 'cut'] } as const;
export const SERVED = { whole: ['ok', 'ok'], stream: ['ok', 'ok'] } as const;
export const COUNTED = { whole: ['counted', 'counted'], stream: ['counted', 'counted'] } as const;
export const REJECTED = { whole: ['caller', 'caller'], stream: ['caller', 'caller'] } as const;

/** In the order one upstream, two upstreams; undefined: not a case. */
interface Endings<Ending> {
  readonly whole: readonly [Ending, Ending] | undefined;
  readonly stream: readonly [Ending, Ending] | undefined;
}

export interface FaultCell<Row, Ending> {
  readonly row: Row;
  readonly stream: boolean;
  readonly upstreams: 1 | 2;
  readonly ending: Ending;
}

export const slugOf = (name: string): string => name.toLowerCase().replace(/[^a-z0-9]+/g, '-');

export const cellsOf = <Ending, Row extends Endings<Ending>>(
  rows: readonly (Row & Endings<Ending>)[],
): FaultCell<Row, Ending>[] =>
  rows.flatMap((row) =>
    [false, true].flatMap((stream) =>
      ((stream ? row.stream : row.whole) ?? []).map((ending, index) => ({
        row,
        stream,
        upstreams: index === 0 ? (1 as const) : (2 as const),
        ending,
      })),
    ),
  );

/** Runs all cells, some at once. */
export async function checkCells<Cell>(
  t: Test,
  cells: readonly Cell[],
  check: (cell: Cell) => Promise<void>,
): Promise<void> {
  const startMs = performance.now();
  const walk = cells.values();
  const work = async (): Promise<void> => {
    for (const cell of walk) await check(cell);
  };
  await Promise.all(Array.from({ length: CELLS_AT_ONCE }, work));
  t.comment(`${cells.length} cells, ${((performance.now() - startMs) / 1_000).toFixed(1)} s`);
}

/** A response with 200: its text, and how its stream ends. `isCut`: with an error event. */
export function checkServed(
  t: Test,
  answer: Answer,
  { stream, isCut, expected }: { stream: boolean; isCut: boolean; expected: RegExp },
  name: string,
): void {
  t.equal(answer.status, 200, `${name}: ${answer.body.slice(0, 200)}`);
  if (answer.status !== 200) return;
  if (!stream) {
    const { choices } = answer.json() as { choices: { message: { content: string } }[] };
    t.match(choices[0]?.message.content, expected, name);
    return;
  }
  t.match(textOf(chunksOf(answer.body)), expected, name);
  const last = eventData(answer.body).at(-1)!;
  if (isCut) t.match(JSON.parse(last), { error: { code: 'provider_unavailable' } }, `${name}: ${last}`);
  else t.equal(last, '[DONE]', name);
}

/** The account, once nothing is held. */
export const settledAccount = ({ admin }: Gateway, accountId: string, name: string): Promise<AccountView> =>
  eventually(`nothing held: ${name}`, async () => {
    const view = await admin.account(accountId);
    return view.held === '0.00' ? view : undefined;
  });

export async function checkNothingStays(
  t: Test,
  gateway: Gateway,
  server: FaultServer,
  secret: string | RegExp,
): Promise<void> {
  t.equal(server.requests.get('followed'), undefined, 'no redirect was followed');
  await eventually('the end of all connections that carried a call', () => {
    const left = [...server.sockets.values()].filter((name) => name !== UNUSED);
    if (left.length === 0) return true;
    throw new Error(left.join(', '));
  });
  const log = gateway.log().join('\n');
  t.notMatch(log, secret);
  t.notMatch(log, /inside of the gateway|invariant/);
}
