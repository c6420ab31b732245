/**
 * `GET /metrics` on the admin port, without a token: the page is made in pieces, so the client may leave meanwhile. Main thread.
 */
import type { HttpResponse } from 'uWebSockets.js';
import type { MetricsFormat, MetricsPage } from '../telemetry/exposition.js';
import { formatOf } from '../telemetry/exposition.js';
import type { Log } from '../telemetry/log.js';

export type RenderMetrics = (format: MetricsFormat) => Promise<MetricsPage>;

/** `accept`: the request's header, which chooses Prometheus' text or OpenMetrics. `head`: the headers alone are wanted. */
export function serveMetrics(
  response: HttpResponse,
  accept: string,
  head: boolean,
  render: RenderMetrics,
  log: Log,
): void {
  let gone = false;
  response.onAborted(() => {
    gone = true;
  });
  render(formatOf(accept)).then(
    ({ contentType, body }) => {
      if (gone) return;
      response.cork(() => {
        response.writeHeader('content-type', contentType);
        response.writeHeader('cache-control', 'no-store');
        if (!head) {
          response.end(body);
          return;
        }
        response.writeHeader('content-length', String(body.length));
        response.endWithoutBody();
      });
    },
    (error: unknown) => {
      log.error('the metrics could not be rendered', { error: String(error) });
      if (!gone) response.cork(() => response.writeStatus('500 Internal Server Error').end());
    },
  );
}
