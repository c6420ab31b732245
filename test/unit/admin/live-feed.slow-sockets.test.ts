/** The live stream of a page whose socket did not take the history at once; µWebSockets' timers run. */
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import t from 'tap';
import type { StatusStats } from '#src/telemetry/history.js';
import { TOKEN, startAdminHouse } from './support.js';

const START = 1_700_000_000;
/** µWebSockets cuts a connection 8 to 12 s after its timer was set. */
const CUT_MS_MAX = 12_500;

const none = { bounds: [], counts: [0] };
const FIGURES: StatusStats = {
  outcomes: { ok: 0 },
  tokens: { prompt: 0, cached: 0, completion: 0 },
  cost: '0.00',
  duration_ms: none,
  first_token_ms: none,
  calls_in_flight: 0,
  refusals: {},
  models: [],
};

void t.test('it goes on after a history that was taken late', async (t) => {
  const house = await startAdminHouse(t);
  // 150 spans of 20 models whose ids have 4 KB each: 12 MB, more than the kernel's buffers take.
  const ids = Array.from({ length: 20 }, (_, index) => String(index).padEnd(4_096, 'x'));
  for (let read = 0; read <= 150; read += 1) {
    const models = ids.map((id) => ({ ...FIGURES, outcomes: { ok: read }, id }));
    house.record({ ...FIGURES, models }, START + 2 * read);
  }
  const outgoing = httpRequest({
    port: house.port,
    host: '127.0.0.1',
    path: '/admin/v1/live',
    agent: false,
    headers: { authorization: `Bearer ${TOKEN}` },
  });
  outgoing.end();
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  let [statuses, isOver] = [0, false];
  incoming.on('data', (chunk: Buffer) => (statuses += chunk.includes('event: now') ? 1 : 0));
  incoming.on('error', () => undefined).once('close', () => (isOver = true));
  let endMs = Infinity;
  for (let read = 151; performance.now() < endMs && !isOver; read += 1) {
    // µWebSockets sets its timer at the latest write, which comes before the first status.
    if (statuses > 0) endMs = Math.min(endMs, performance.now() + CUT_MS_MAX);
    await pause(1_000);
    house.record(FIGURES, START + 2 * read);
  }
  t.ok(statuses > 3 && !isOver, `${statuses} statuses came`);
  incoming.destroy();
});
