/**
 * Many streams at once, each a chunk a second: whether all are served whole, by how much their chunks are
 * late, and what memory one of them costs.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { cpuMicros, peakBytes, resetPeaks } from '../support/proc.js';
import type { Contender } from './contenders/contender.js';
import type { SlowOrder, SlowReport } from './paced/messages.js';
import { warmUp, type WarmUp } from './round.js';
import { CHUNK_BYTES, STREAMS } from './scenarios/streams.js';
import { bodyOf, PROXIES } from './scenarios/prompt.js';

const run = promisify(execFile);
const CLIENT = new URL('paced/slow-client.js', import.meta.url).pathname;

export interface SlowPace {
  readonly streams: number;
  readonly chunkMs: number;
}

/** One proxy process needs two descriptors a stream, and 20,000 is a usual hard limit. */
export const FULL_PACE: SlowPace = { streams: 9_800, chunkMs: 1_000 };
export const SMOKE_PACE: SlowPace = { streams: 50, chunkMs: 20 };
const CHUNKS = 20;
/** All are open before the first one ends. */
const OPENED_PER_SECOND = 800;
const OVERHEAD_MS_MAX = 60_000;

/** One line of the table. */
export interface SlowStreams extends SlowReport {
  readonly contender: string;
  readonly streams: number;
  /** Peak of resident memory above that of rest, over the streams that were open at once. */
  readonly bytesPerStream: number;
  readonly cpuMicrosPerChunk: number;
}

/** One round of each: it takes half a minute, and what is looked at is the worst. */
export async function measureSlowStreams(
  all: readonly Contender[],
  { streams, chunkMs }: SlowPace,
  load: WarmUp,
): Promise<SlowStreams[]> {
  const lines: SlowStreams[] = [];
  for (const contender of all.filter(({ name }) => PROXIES.includes(name))) {
    const body = bodyOf({
      promptBytes: 200,
      answerBytes: CHUNKS * CHUNK_BYTES,
      chunks: CHUNKS,
      stream: true,
      chunkMs,
    });
    await warmUp(contender, STREAMS[0]!, load);
    const call = contender.callOf({ caller: 'paying', status: 200 });
    const order: SlowOrder = {
      port: contender.port,
      ...call,
      body,
      streams,
      openedPerSecond: OPENED_PER_SECOND,
      chunks: CHUNKS,
      chunkMs,
    };
    const pids = contender.pids();
    resetPeaks(pids);
    const restBytes = peakBytes(pids);
    const beforeMicros = cpuMicros(pids);
    const opening = Math.ceil((streams / OPENED_PER_SECOND) * 1_000);
    const timeout = CHUNKS * chunkMs + opening + OVERHEAD_MS_MAX;
    const { stdout } = await run(process.execPath, [CLIENT, JSON.stringify(order)], { timeout });
    const report = JSON.parse(stdout) as SlowReport;
    lines.push({
      ...report,
      contender: contender.name,
      streams,
      bytesPerStream: (peakBytes(pids) - restBytes) / Math.max(1, report.openMax),
      cpuMicrosPerChunk: (cpuMicros(pids) - beforeMicros) / (streams * CHUNKS),
    });
  }
  return lines;
}
