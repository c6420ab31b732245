/**
 * The least that the gateway's two threads can be, in a process of its own: a listener on µWebSockets.js
 * hands each body over the gateway's own link to a worker, which sends it to the upstream over kept
 * connections of `net` and hands the response back. Nothing is looked up, read, counted or timed, and errors
 * end it. So it is what the platform costs, and what the gateway takes beyond it is the gateway's work.
 *
 * `node server.js UPSTREAM_PORT` prints its own port.
 */
import { Worker } from 'node:worker_threads';
import { createFrameChannel } from '#src/channel/frame-port.js';

const upstreamPort = Number(process.argv[2]);
const [ofListener, ofWorker] = createFrameChannel();

const start = (
  file: string,
  workerData: { readonly link: typeof ofListener; readonly upstreamPort: number },
) =>
  new Worker(new URL(file, import.meta.url), {
    workerData,
    transferList: [workerData.link.port],
  });

start('./worker.js', { link: ofWorker, upstreamPort });
start('./listener.js', { link: ofListener, upstreamPort });
