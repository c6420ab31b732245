/**
 * An upstream in the test's own process that plays a script for each call and remembers what it sent: for
 * tests that hold the books against it. The script of a call is found by the text of its first message.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Scope } from './mock.js';
import { streamChoice, TEXT_KINDS, wholeChoice, type TextKind } from './text-kinds.js';
import { pick, type Random } from './random.js';

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
/**
 * `early`: in the first event alone. `each`: in each, as far as it has come. `twice`: early and at the end.
 */
export const USAGES = ['none', 'end', 'early', 'each', 'twice'] as const;

/** Of several choices: their texts come by turns, or a choice comes once the one before it has ended. */
export const ORDERS = ['by turns', 'in a row'] as const;

export interface Script {
  /** Events with text, of all choices together. */
  readonly events: number;
  readonly wordsPerEvent: number;
  readonly pauseMs: number;
  readonly usage: (typeof USAGES)[number];
  readonly ending: Ending;
  /**
   * Events before the ending, if it is a failure: those with text, and one for the finish reason of each
   * choice. With all of them the text was whole, with one more also `[DONE]` was sent.
   */
  readonly endingAt: number;
  /** Bytes in each event that are no text. */
  readonly padding: number;
  /** `n` of the request; some providers give one choice whatever was asked for. */
  readonly asked: number;
  readonly choices: number;
  readonly order: (typeof ORDERS)[number];
  /** Where the text stands. */
  readonly kind: TextKind;
}

/** What most scripts do. */
export const ONE_CHOICE = { asked: 1, choices: 1, order: 'by turns', kind: TEXT_KINDS[0]! } as const;

/** What became of a script; read it once the call is over. */
export interface Sent {
  words: number;
  /** As many choices as were asked for have their finish reason, or `[DONE]` was sent. */
  wasWhole: boolean;
  /** It has failed by itself, as its script says. */
  failed: boolean;
  /** How long its socket had taken nothing then. */
  blockedMs: number;
  /** How long it had lived then. */
  livedMs: number;
  /**
   * Its longest silence before that though its socket took everything: on a busy machine it may pass for a
   * failure.
   */
  silentMs: number;
}

/** Each is generated once. */
const KINDS = TEXT_KINDS.filter(({ copies }) => copies === undefined);

export function drawScript(random: Random): Script {
  const isLong = random() < 0.05;
  const events = isLong ? 400 : Math.floor(random() * 25) + 1;
  const asked = random() < 0.7 ? 1 : 2 + Math.floor(random() * 3);
  const choices = random() < 0.85 ? asked : 1;
  return {
    events,
    wordsPerEvent: isLong ? 100 : Math.floor(random() * 4) + 1,
    pauseMs: isLong || random() < 0.5 ? 0 : Math.floor(random() * 12),
    usage: pick(random, USAGES),
    ending: pick(random, ENDINGS),
    endingAt: Math.floor(random() * (events + choices + 1)),
    padding: isLong ? 20_000 : 0,
    asked,
    choices,
    order: pick(random, ORDERS),
    kind: random() < 0.5 ? TEXT_KINDS[0]! : pick(random, KINDS),
  };
}

/** An event of a stream: a piece of text of a choice, or why that choice ended. */
interface Step {
  readonly choice: number;
  readonly isEnd: boolean;
}

const stepCountOf = ({ events, choices }: Script): number => events + choices;

const eventsOf = (script: Script, choice: number): number => {
  const { events, choices, order } = script;
  if (order === 'by turns') return Math.max(0, Math.ceil((events - choice) / choices));
  const perChoice = Math.ceil(events / choices);
  return Math.min(perChoice, Math.max(0, events - choice * perChoice));
};

/** One by one, as a script may be without end. */
function* stepsOf(script: Script): Generator<Step> {
  const { events, choices, order } = script;
  const perChoice = Math.ceil(events / choices);
  const left = Array.from({ length: choices }, (_, choice) => eventsOf(script, choice));
  const silent = left.flatMap((count, choice) => (count === 0 ? [choice] : []));
  for (let number = 0; number < events; number++) {
    const choice = order === 'by turns' ? number % choices : Math.floor(number / perChoice);
    yield { choice, isEnd: false };
    left[choice]! -= 1;
    if (left[choice] === 0) yield { choice, isEnd: true };
  }
  for (const choice of silent) yield { choice, isEnd: true };
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
    const sent: Sent = { words: 0, wasWhole: false, failed: false, blockedMs: 0, livedMs: 0, silentMs: 0 };
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
  readonly #startMs = performance.now();
  #spokeMs = performance.now();
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
    const { asked, choices, endingAt, ending } = this.#script;
    const stepCount = stepCountOf(this.#script);
    const fails = ending !== 'end' && ending !== 'no done';
    if (!this.#stream) {
      await this.#whole(fails && endingAt <= stepCount);
      return;
    }
    this.#response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
    let number = 0;
    for (const step of stepsOf(this.#script)) {
      if (fails && number === endingAt) {
        await this.#end();
        return;
      }
      await this.#write(this.#chunk(step, number));
      number++;
      if (!step.isEnd) this.#sent.words += this.#script.wordsPerEvent;
      if (this.#isGone) return;
    }
    this.#sent.wasWhole = choices >= asked;
    if (fails && endingAt === stepCount) {
      await this.#end();
      return;
    }
    const { usage } = this.#script;
    if (usage === 'end' || usage === 'twice') await this.#write(event(this.#object([], this.#usage())));
    if (ending !== 'no done') {
      await this.#write('data: [DONE]\n\n');
      this.#sent.wasWhole = true;
    }
    if (fails) await this.#end();
    else this.#response.end();
  }

  async #whole(fails: boolean): Promise<void> {
    const { choices: count, kind, wordsPerEvent } = this.#script;
    const choices = Array.from({ length: count }, (_, index) => {
      return wholeChoice(kind, index, WORD.repeat(eventsOf(this.#script, index) * wordsPerEvent));
    });
    this.#sent.words = this.#script.events * wordsPerEvent;
    const usage = this.#script.usage === 'none' ? undefined : this.#usage();
    const text = JSON.stringify(this.#object(choices, usage));
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

  #chunk({ choice, isEnd }: Step, number: number): string {
    const { usage, wordsPerEvent, padding, kind } = this.#script;
    const isTold = usage === 'each' || (number === 0 && (usage === 'early' || usage === 'twice'));
    const coming = usage === 'each' && !isEnd ? wordsPerEvent : 0;
    const parts = isEnd
      ? { index: choice, delta: {}, finish_reason: 'stop' }
      : {
          ...streamChoice(kind, choice, WORD.repeat(wordsPerEvent)),
          ...(padding > 0 && { padding: 'x'.repeat(padding) }),
        };
    return event(this.#object([parts], isTold ? this.#usage(coming) : undefined));
  }

  async #write(text: string): Promise<void> {
    if (this.#isGone) return;
    const nowMs = performance.now();
    this.#sent.silentMs = Math.max(this.#sent.silentMs, nowMs - this.#spokeMs);
    if (!this.#response.write(text)) {
      this.#blockedAtMs ??= nowMs;
      await new Promise<void>((resolve) => (this.#onFree = resolve));
    }
    this.#spokeMs = performance.now();
    if (this.#script.pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, this.#script.pauseMs));
  }

  async #end(): Promise<void> {
    const { ending } = this.#script;
    if (ending === 'too long') {
      while (!this.#isGone) {
        await this.#write(this.#chunk({ choice: 0, isEnd: false }, 1));
        this.#sent.words += this.#script.wordsPerEvent;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      return;
    }
    // What was written before is to be out before a reset.
    await new Promise((resolve) => setTimeout(resolve, 5));
    if (this.#isGone) return;
    const nowMs = performance.now();
    this.#sent.failed = true;
    this.#sent.blockedMs = this.#blockedAtMs === undefined ? 0 : nowMs - this.#blockedAtMs;
    this.#sent.livedMs = nowMs - this.#startMs;
    if (ending === 'reset') this.#response.socket?.resetAndDestroy();
    else if (ending === 'close') this.#response.socket?.destroy();
    else if (ending === 'error') this.#response.end(event({ error: { message: 'x' } }));
    else if (ending === 'garbage') this.#response.end('data: {"choices":[\n\n');
    else if (ending === 'half') this.#response.end('data: {"cho');
  }
}
