/**
 * The paced client: an open loop. Calls are sent when they are due, whatever became of the earlier ones, so
 * that a server that stands still is charged for every call that it held up (no coordinated omission). A
 * process of its own.
 *
 * Its timer ticks once a millisecond and sends what is due, so calls of one tick go out together; the
 * lateness of the tick itself is the client's and is not counted. A call that finds no free connection is
 * counted from when it was due.
 */
import { readFileSync } from 'node:fs';
import { Connection } from './connection.js';
import { percentilesOf, type PacedOrder, type PacedReport } from './messages.js';

const TICK_MS = 1;
/** Of calls that have not been answered when the time is over. */
const LAST_ANSWERS_MS_MAX = 10_000;
/** A mark that only the text of a response has: whole or in chunks. */
const TEXT_MARK = '"content":"';

const order = JSON.parse(process.argv[2]!) as PacedOrder;
const calls = Math.round(order.ratePerSecond * order.seconds);
const first = new Float64Array(calls);
const whole = new Float64Array(calls);
const statuses: Record<string, number> = {};
const free: Connection[] = [];
/** When the calls were due that wait for a connection. */
const waiting: number[] = [];
let connections = 0;
let sent = 0;
let ended = 0;
let answers = 0;
let failures = 0;
let failure: string | undefined;

const keys = order.keysFile === undefined ? [] : readFileSync(order.keysFile, 'latin1').trim().split('\n');
const requests =
  keys.length === 0 ? [requestOf({})] : keys.map((key) => requestOf({ authorization: `Bearer ${key}` }));

function requestOf(more: Readonly<Record<string, string>>): string {
  const headers = {
    host: '127.0.0.1',
    'content-length': String(order.body.length),
    ...order.headers,
    ...more,
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return `POST ${order.path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${order.body}`;
}

function call(connection: Connection, sinceMs: number): void {
  let seen = false;
  connection.send(requests[sent++ % requests.length]!, {
    onPiece: (text) => {
      if (seen || !text.includes(TEXT_MARK)) return;
      seen = true;
      first[answers] = (performance.now() - sinceMs) * 1_000;
    },
    onEnd: (status) => {
      whole[answers] = (performance.now() - sinceMs) * 1_000;
      answers++;
      statuses[status] = (statuses[status] ?? 0) + 1;
      const due = waiting.shift();
      if (due === undefined) free.push(connection);
      else call(connection, due);
      end();
    },
    onFail: (reason) => {
      failures++;
      failure ??= reason;
      connections--;
      end();
    },
  });
}

function end(): void {
  ended++;
  if (ended === calls) report();
}

function report(): void {
  const text: PacedReport = {
    answers,
    failures: failures + calls - ended,
    ...(failure === undefined ? {} : { failure }),
    statuses,
    seconds: (performance.now() - beganMs) / 1_000,
    firstMicros: percentilesOf(first.subarray(0, answers)),
    wholeMicros: percentilesOf(whole.subarray(0, answers)),
  };
  process.stdout.write(`${JSON.stringify(text)}\n`, () => process.exit(0));
}

const beganMs = performance.now();
let due = 0;
const ticks = setInterval(() => {
  const nowMs = performance.now();
  const soFar = Math.min(calls, Math.floor(((nowMs - beganMs) / 1_000) * order.ratePerSecond));
  for (; due < soFar; due++) {
    const connection = free.pop() ?? opened();
    if (connection === undefined) waiting.push(beganMs + (due / order.ratePerSecond) * 1_000);
    else call(connection, nowMs);
  }
  if (due < calls) return;
  clearInterval(ticks);
  setTimeout(report, LAST_ANSWERS_MS_MAX);
}, TICK_MS);

function opened(): Connection | undefined {
  if (connections >= order.connectionsMax) return undefined;
  connections++;
  return new Connection(order.port);
}
