/**
 * What it costs to read a chat request: µs of one thread for each step and for the whole, by size of the
 * body. One process, closed loop, fixed inputs. Run as `node build/bench/micro/parse.js [milliseconds a
 * measurement, 300]`.
 *
 * Each step is measured in ROUNDS rounds that take turns with the other steps; the least and the median are
 * printed. The checksum is the same for every run of one version: it shows that the work was done.
 */
import { isAscii } from 'node:buffer';
import { cpus } from 'node:os';
import { ChatScan } from '#src/protocol/chat-scan.js';
import { JsonReader } from '#src/protocol/json-reader.js';
import { readChatBytes } from '#src/protocol/request-bytes.js';
import { REQUEST_RULES } from '#src/protocol/generated.js';

const ROUNDS = 5;
const measurementMs = Number(process.argv[2] ?? 300);

/** A conversation with a prompt of about `chars` characters, cut into messages of 2,000, with a quote or a
 * line's end every 50 characters. */
function bodyOf(chars: number, word: string): Buffer {
  const line = `${`${word} `.repeat(12)}with "a quote" in it\n${`${word} `.repeat(12)}\n`;
  const text = line.repeat(Math.ceil(chars / line.length)).slice(0, chars);
  const messages = [{ role: 'system', content: 'You are a helpful assistant.' }];
  for (let at = 0; at < chars; at += 2_000)
    messages.push({ role: 'user', content: text.slice(at, at + 2_000) });
  return Buffer.from(
    JSON.stringify({ model: 'gpt-4o-mini', messages, temperature: 0.7, max_tokens: 256, stream: true }),
  );
}

const BODIES = {
  '200 B': bodyOf(200, 'words'),
  '16 KB': bodyOf(16 * 1024, 'words'),
  '64 KB': bodyOf(64 * 1024, 'words'),
  '64 KB, Chinese': bodyOf(22 * 1024, '请介绍'),
};

/** A step returns a number that depends on its work. */
type Step = () => number;

function stepsOf(body: Buffer): Record<string, Step> {
  const text = body.toString('utf8');
  const value: unknown = JSON.parse(text);
  const ascii = isAscii(body);
  return {
    // What reading would cost with a tree, for comparison.
    'JSON.parse': () => (JSON.parse(text) as { model: string }).model.length,
    check: () => Number(REQUEST_RULES.chat.check(value)),
    reader: () => {
      const reader = new JsonReader(body);
      reader.skipValue();
      return reader.position;
    },
    scan: () => new ChatScan(body, ascii).end,
    whole: () => {
      const result = readChatBytes(body);
      return result.ok ? result.call.modelEnd + result.call.bodyBytes : 0;
    },
  };
}

function microsecondsOf(step: Step, durationMs: number): number {
  const start = performance.now();
  let runs = 0;
  let now = start;
  for (; now - start < durationMs; now = performance.now()) {
    for (let index = 0; index < 20; index++) step();
    runs += 20;
  }
  return ((now - start) * 1_000) / runs;
}

console.log(
  `node ${process.version}, ${cpus()[0]?.model ?? 'unknown processor'}; µs: least (median) of ${ROUNDS} rounds`,
);
let checksum = 0;
for (const [name, body] of Object.entries(BODIES)) {
  const steps = Object.entries(stepsOf(body));
  const seen = new Map<string, number[]>(steps.map(([step]) => [step, []]));
  for (const [, run] of steps) checksum += run();
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [step, run] of steps) {
      const microseconds = microsecondsOf(run, measurementMs / ROUNDS);
      // The first round warms up.
      if (round > 0) seen.get(step)?.push(microseconds);
    }
  }
  const cells = steps.map(([step]) => {
    const sorted = (seen.get(step) ?? []).sort((a, b) => a - b);
    return `${step} ${sorted[0]!.toFixed(2)} (${sorted[ROUNDS >> 1]!.toFixed(2)})`;
  });
  console.log(`${name.padEnd(17)} ${String(body.length).padStart(6)} bytes  ${cells.join('  ')}`);
}
console.log(`checksum ${checksum}`);
