/**
 * One run of the paced client in a process of its own.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { PacedOrder, PacedReport } from './messages.js';

const run = promisify(execFile);
const CLIENT = new URL('client.js', import.meta.url).pathname;
/** On top of the run itself: its start, the last responses, and the report. */
const OVERHEAD_MS_MAX = 30_000;

/** Rejects where a call was answered with anything but 200, or not at all. */
export async function applyPacedLoad(order: PacedOrder): Promise<PacedReport> {
  const { stdout } = await run(process.execPath, [CLIENT, JSON.stringify(order)], {
    timeout: order.seconds * 1_000 + OVERHEAD_MS_MAX,
  });
  const report = JSON.parse(stdout) as PacedReport;
  if (report.failures > 0 || report.statuses['200'] !== report.answers) {
    const seen = JSON.stringify(report.statuses);
    throw new Error(
      `not every call was served: ${seen}, ${report.failures} failed (${report.failure ?? 'late'})`,
    );
  }
  return report;
}
