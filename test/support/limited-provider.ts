/**
 * A provider in the test's own process that writes down what each of its keys is asked for: for tests of the
 * limits that a gateway keeps there.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Scope } from './mock.js';

/** A call as its provider saw it. */
export interface ProviderCall {
  readonly key: string;
  readonly model: string;
  readonly beganMs: number;
  /** Infinity while it is in work. */
  endedMs: number;
  readonly tokens: number;
}

export interface LimitedProvider {
  readonly url: string;
  readonly calls: ProviderCall[];
  /** The most that was in work at a time for the key. */
  mostInFlight(key: string): number;
  /** The most that any 60 seconds saw, counted at `at` of each call. */
  mostInMinute(key: string, at: 'beganMs' | 'endedMs', of: (call: ProviderCall) => number): number;
}

export interface ProviderOptions {
  readonly answerMs?: number;
  /** Reported for each call. */
  readonly tokens?: { readonly prompt: number; readonly completion: number };
  /** Of calls that fail, by the calls before it. */
  readonly statusOf?: (call: number) => number;
}

const MINUTE_MS = 60_000;

export async function startProvider(t: Scope, options: ProviderOptions = {}): Promise<LimitedProvider> {
  const { answerMs = 0, tokens = { prompt: 5, completion: 5 }, statusOf = () => 200 } = options;
  const calls: ProviderCall[] = [];
  const inFlight = new Map<string, number>();
  const most = new Map<string, number>();
  const server = createServer((request, response) => {
    const key = (request.headers.authorization ?? '').replace('Bearer ', '');
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      const { model } = JSON.parse(body) as { model: string };
      const call: ProviderCall = {
        key,
        model,
        beganMs: performance.now(),
        endedMs: Infinity,
        tokens: tokens.prompt + tokens.completion,
      };
      const status = statusOf(calls.length);
      calls.push(call);
      inFlight.set(key, (inFlight.get(key) ?? 0) + 1);
      most.set(key, Math.max(most.get(key) ?? 0, inFlight.get(key)!));
      setTimeout(() => {
        inFlight.set(key, inFlight.get(key)! - 1);
        call.endedMs = performance.now();
        answer(response, status, model, tokens);
      }, answerMs);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    calls,
    mostInFlight: (key) => most.get(key) ?? 0,
    mostInMinute(key, at, of) {
      const own = calls.filter((call) => call.key === key && call[at] < Infinity);
      own.sort((one, other) => one[at] - other[at]);
      let first = 0;
      let sum = 0;
      return own.reduce((least, call) => {
        sum += of(call);
        for (; own[first]![at] <= call[at] - MINUTE_MS; first++) sum -= of(own[first]!);
        return Math.max(least, sum);
      }, 0);
    },
  };
}

function answer(
  response: ServerResponse,
  status: number,
  model: string,
  { prompt, completion }: { readonly prompt: number; readonly completion: number },
): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  if (status !== 200) {
    response.end('{"error":{"message":"no","code":"mock"}}');
    return;
  }
  response.end(
    JSON.stringify({
      id: 'chatcmpl-1',
      object: 'chat.completion',
      created: 1_700_000_000,
      model,
      choices: [{ index: 0, message: { role: 'assistant', content: 'hello there' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion },
    }),
  );
}
