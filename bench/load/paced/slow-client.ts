/**
 * Many slow streams at once: opens them at a steady pace, holds them all, and looks at the gaps between their
 * pieces. A process of its own. Its only argument is the order, its last line of standard output the report.
 */
import { Connection } from './connection.js';
import { percentilesOf, type SlowOrder, type SlowReport } from './messages.js';

const TICK_MS = 10;
const END_MARK = '[DONE]';
const TEXT_MARK = '"content":"';

const order = JSON.parse(process.argv[2]!) as SlowOrder;
const headers = { host: '127.0.0.1', 'content-length': String(order.body.length), ...order.headers };
const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
const request = `POST ${order.path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${order.body}`;

const gaps = new Float64Array(order.streams * order.chunks);
let gapCount = 0;
let begun = 0;
let open = 0;
let openMax = 0;
let served = 0;
let cut = 0;
let failure: string | undefined;

function begin(): void {
  begun++;
  const connection = new Connection(order.port);
  let lastMs: number | undefined;
  let whole = false;
  const end = (): void => {
    if (lastMs !== undefined) open--;
    if (whole) served++;
    else cut++;
    connection.close();
    if (served + cut === order.streams) report();
  };
  connection.send(request, {
    onPiece: (text) => {
      const nowMs = performance.now();
      whole ||= text.includes(END_MARK);
      if (!text.includes(TEXT_MARK)) return;
      if (lastMs === undefined) openMax = Math.max(openMax, ++open);
      else gaps[gapCount++] = (nowMs - lastMs - order.chunkMs) * 1_000;
      lastMs = nowMs;
    },
    onEnd: (status) => {
      if (status !== 200) failure ??= `status ${status}`;
      end();
    },
    onFail: (reason) => {
      failure ??= reason;
      end();
    },
  });
}

function report(): void {
  const text: SlowReport = {
    served,
    cut,
    openMax,
    lateMicros: percentilesOf(gaps.subarray(0, gapCount)),
    ...(failure === undefined ? {} : { failure }),
  };
  process.stdout.write(`${JSON.stringify(text)}\n`, () => process.exit(0));
}

const beganMs = performance.now();
const ticks = setInterval(() => {
  const due = Math.min(order.streams, ((performance.now() - beganMs) / 1_000) * order.openedPerSecond);
  while (begun < due) begin();
  if (begun === order.streams) clearInterval(ticks);
}, TICK_MS);
