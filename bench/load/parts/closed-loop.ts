/**
 * Closed-loop load that can be switched on and off: each connection sends its next request when it has the
 * whole response to the last one. Connections are opened with each start, since a gateway closes those that
 * rest.
 */
import { Connection } from '../paced/connection.js';
import { within } from '../../support/child.js';

const LAST_ANSWERS_MS_MAX = 20_000;

export class ClosedLoop {
  readonly #port: number;
  readonly #request: string;
  readonly #connections: number;
  readonly #status: number;
  #answers = 0;
  #open = 0;
  #isOn = false;
  #failure: string | undefined;
  #stopped: (() => void) | undefined;

  /** `request` is all of it, head and body; `status` is that of the responses. */
  constructor(port: number, request: string, connections: number, status: number) {
    this.#port = port;
    this.#request = request;
    this.#connections = connections;
    this.#status = status;
  }

  /** Since the beginning. */
  get answers(): number {
    return this.#answers;
  }

  start(): void {
    this.#isOn = true;
    this.#open = this.#connections;
    for (let i = 0; i < this.#connections; i++) this.#send(new Connection(this.#port));
  }

  /** Resolves when the last responses are here; rejects if a status was wrong or a connection broke. */
  async stop(): Promise<void> {
    const stopped = new Promise<void>((resolve) => (this.#stopped = resolve));
    this.#isOn = false;
    if (this.#open > 0) await within(stopped, LAST_ANSWERS_MS_MAX, 'the last answers');
    if (this.#failure !== undefined) throw new Error(`not every call was served: ${this.#failure}`);
  }

  #send(connection: Connection): void {
    connection.send(this.#request, {
      onPiece: () => undefined,
      onEnd: (status) => {
        // A plan's one call of a minute is served.
        if (status !== this.#status && !(this.#status === 429 && status === 200))
          this.#failure ??= `status ${status}`;
        this.#answers++;
        if (this.#isOn) {
          this.#send(connection);
          return;
        }
        connection.close();
        this.#close();
      },
      onFail: (reason) => {
        this.#failure ??= reason;
        this.#close();
      },
    });
  }

  #close(): void {
    this.#open--;
    if (this.#open === 0) this.#stopped?.();
  }
}
