/**
 * An upstream in the test's own process that plays a script for each call and remembers what it sent: for tests that hold the books
 * against it. The script of a call is found by the text of its first message.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Scope } from './mock.js';
import { oneOf, type Random } from './random.js';

/** One token, with the space before it. */
export const WORD = ' word';
const PROMPT_TOKENS = 8;

/** `too long`: the stream goes on beyond `total_timeout_ms`. */
export const ENDINGS = [
  'end',
  'no done',
  'reset',
  'close',
  'error',
  'garbage',
  'half',
  'stall',
  'too long',
] as const;
export type Ending = (typeof ENDINGS)[number];
/** `early`: in the first event alone. `each`: in each, as far as it has come. `twice`: early and at the end. */
export const USAGES = ['none', 'end', 'early', 'each', 'twice'] as const;

export interface Script {
  readonly events: number;
  readonly wordsPerEvent: number;
  readonly pauseMs: number;
  readonly usage: (typeof USAGES)[number];
  readonly ending: Ending;
  /** Events before the ending, if it is a failure; with `events` the finish reason was sent, with one more also `[DONE]`. */
  readonly endingAt: number;
  /** Bytes in each event that are no text. */
  readonly padding: number;
}

/** What became of a script; read it once the call is over. */
export interface Sent {
  words: number;
  /** The finish reason was sent. */
  wasWhole: boolean;
  /** It has failed by itself, as its script says. */
  failed: boolean;
  /** How long its socket had taken nothing then. */
  blockedMs: number;
}

export function drawScript(random: Random): Script {
  const isLong = random() < 0.05;
  const events = isLong ? 400 : Math.floor(random() * 25) + 1;
  return {
    events,
    wordsPerEvent: isLong ? 100 : Math.floor(random() * 4) + 1,
    pauseMs: isLong || random() < 0.5 ? 0 : Math.floor(random() * 12),
    usage: oneOf(random, USAGES),
    ending: oneOf(random, ENDINGS),
    endingAt: Math.floor(random() * (events + 2)),
    padding: isLong ? 20_000 : 0,
  };
}

export class BilledUpstream {
  readonly url: string;
  readonly #calls = new Map<string, { readonly script: Script; readonly sent: Sent }>();

  private constructor(url: string) {
    this.url = url;
  }

  static async start(t: Scope): Promise<BilledUpstream> {
    const server = createServer((request, response) => {
      const parts: Buffer[] = [];
      request.on('data', (part: Buffer) => parts.push(part));
      request.on('end', () => {
        const body = JSON.parse(Buffer.concat(parts).toString()) as {
          stream?: boolean;
          messages: { content: string }[];
        };
        const call = upstream.#calls.get(body.messages[0]!.content)!;
        response.on('error', () => undefined);
        void new Play(response, call.script, call.sent, body.stream === true).run();
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const upstream = new BilledUpstream(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`);
    t.teardown(() => {
      server.close();
      server.closeAllConnections();
    });
    return upstream;
  }

  /** The call with that text plays the script. */
  expect(name: string, script: Script): Sent {
    const sent: Sent = { words: 0, wasWhole: false, failed: false, blockedMs: 0 };
    this.#calls.set(name, { script, sent });
    return sent;
  }
}

const event = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`;

class Play {
  readonly #response: ServerResponse;
  readonly #script: Script;
  readonly #sent: Sent;
  readonly #stream: boolean;
  #isGone = false;
  #blockedAtMs: number | undefined;
  #onFree: () => void = () => undefined;

  constructor(response: ServerResponse, script: Script, sent: Sent, stream: boolean) {
    this.#response = response;
    this.#script = script;
    this.#sent = sent;
    this.#stream = stream;
    response.on('close', () => {
      this.#isGone = true;
      this.#onFree();
    });
    response.on('drain', () => {
      this.#blockedAtMs = undefined;
      this.#onFree();
    });
  }

  async run(): Promise<void> {
    const { events, endingAt, ending } = this.#script;
    const fails = ending !== 'end' && ending !== 'no done';
    if (!this.#stream) {
      await this.#whole(fails && endingAt <= events);
      return;
    }
    this.#response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
    for (let number = 0; number < events; number += 1) {
      if (fails && number === endingAt) {
        await this.#end();
        return;
      }
      await this.#write(this.#chunk(number));
      this.#sent.words += this.#script.wordsPerEvent;
      if (this.#isGone) return;
    }
    await this.#write(event(this.#object([{ index: 0, delta: {}, finish_reason: 'stop' }], undefined)));
    this.#sent.wasWhole = true;
    if (fails && endingAt === events) {
      await this.#end();
      return;
    }
    const { usage } = this.#script;
    if (usage === 'end' || usage === 'twice') await this.#write(event(this.#object([], this.#usage())));
    if (ending !== 'no done') await this.#write('data: [DONE]\n\n');
    if (fails) await this.#end();
    else this.#response.end();
  }

  async #whole(fails: boolean): Promise<void> {
    const words = this.#script.events * this.#script.wordsPerEvent;
    const message = { role: 'assistant', content: WORD.repeat(words) };
    this.#sent.words = words;
    const usage = this.#script.usage === 'none' ? undefined : this.#usage();
    const text = JSON.stringify(this.#object([{ index: 0, message, finish_reason: 'stop' }], usage));
    this.#response.writeHead(200, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(text),
    });
    if (!fails) {
      this.#sent.wasWhole = true;
      this.#response.end(text);
      return;
    }
    this.#response.write(text.slice(0, text.length / 2));
    this.#sent.failed = true;
    await new Promise((resolve) => setTimeout(resolve, 5));
    if (this.#script.ending === 'reset') this.#response.socket?.resetAndDestroy();
    else this.#response.socket?.destroy();
  }

  #object(choices: object[], usage: object | undefined): object {
    return {
      id: 'c',
      object: 'chat.completion.chunk',
      created: 1,
      model: 'm',
      choices,
      ...(usage && { usage }),
    };
  }

  /** `coming`: words of the event that brings the report, which are not sent yet. */
  #usage(coming = 0): object {
    const words = this.#sent.words + coming;
    return { prompt_tokens: PROMPT_TOKENS, completion_tokens: words, total_tokens: PROMPT_TOKENS + words };
  }

  #chunk(number: number): string {
    const { usage, wordsPerEvent, padding } = this.#script;
    const delta = { content: WORD.repeat(wordsPerEvent) };
    const isTold = usage === 'each' || (number === 0 && (usage === 'early' || usage === 'twice'));
    const choice = {
      index: 0,
      delta,
      finish_reason: null,
      ...(padding > 0 && { padding: 'x'.repeat(padding) }),
    };
    return event(
      this.#object([choice], isTold ? this.#usage(usage === 'each' ? wordsPerEvent : 0) : undefined),
    );
  }

  async #write(text: string): Promise<void> {
    if (this.#isGone) return;
    if (!this.#response.write(text)) {
      this.#blockedAtMs ??= performance.now();
      await new Promise<void>((resolve) => (this.#onFree = resolve));
    }
    if (this.#script.pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, this.#script.pauseMs));
  }

  async #end(): Promise<void> {
    const { ending } = this.#script;
    if (ending === 'too long') {
      while (!this.#isGone) {
        await this.#write(this.#chunk(1));
        this.#sent.words += this.#script.wordsPerEvent;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      return;
    }
    // What was written before is to be out before a reset.
    await new Promise((resolve) => setTimeout(resolve, 5));
    if (this.#isGone) return;
    this.#sent.failed = true;
    this.#sent.blockedMs = this.#blockedAtMs === undefined ? 0 : performance.now() - this.#blockedAtMs;
    if (ending === 'reset') this.#response.socket?.resetAndDestroy();
    else if (ending === 'close') this.#response.socket?.destroy();
    else if (ending === 'error') this.#response.end(event({ error: { message: 'x' } }));
    else if (ending === 'garbage') this.#response.end('data: {"choices":[\n\n');
    else if (ending === 'half') this.#response.end('data: {"cho');
  }
}
